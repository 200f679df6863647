/*
 * Cuts writes short. Preloaded into a process, it counts what that writes to files below SHORT_WRITES_FOLDER, and
 * plays SHORT_WRITES_KIND with the write number SHORT_WRITES_FIRST, and with those after it if SHORT_WRITES_FOR_GOOD
 * is set. Everything else is passed on. What was cut is told in the file SHORT_WRITES_LOG, one line each, and at the
 * end of the process how many writes there were.
 *
 * Kinds: "half" and "one" write so much and say so; "half-full" and "none-full" do, and the next write finds the disk
 * full; "lie" writes half and says that it was all, and does so with what is written at an offset alone, as engines do.
 *
 * For Linux on machines of 64 bits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *folder, *kind = "";
static size_t folder_length;
static long first;
static int for_good, told = -1;
static atomic_long writes;
static atomic_int full;

static void tell(const char *line, int length)
{
    if (told >= 0 && length > 0)
        syscall(SYS_write, told, line, (size_t)length);
}

__attribute__((constructor)) static void begin(void)
{
    const char *log = getenv("SHORT_WRITES_LOG"), *number = getenv("SHORT_WRITES_FIRST");
    folder = getenv("SHORT_WRITES_FOLDER");
    if (!folder || !log || !number)
        return;
    folder_length = strlen(folder);
    first = atol(number);
    for_good = getenv("SHORT_WRITES_FOR_GOOD") != NULL;
    if (getenv("SHORT_WRITES_KIND"))
        kind = getenv("SHORT_WRITES_KIND");
    told = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

__attribute__((destructor)) static void end(void)
{
    char line[64];
    tell(line, snprintf(line, sizeof line, "writes %ld\n", atomic_load(&writes)));
}

/* How many of `length` bytes are to be written; -1 if there is no room. `*lie` is what is told instead, or 0. */
static ssize_t allowed(const char *call, int descriptor, size_t length, size_t *lie)
{
    char name[32], path[PATH_MAX], line[PATH_MAX + 96];
    ssize_t so_long, few = (ssize_t)length;
    long number;

    *lie = 0;
    if (told < 0 || length == 0)
        return few;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    so_long = readlink(name, path, sizeof path - 1);
    if (so_long <= (ssize_t)folder_length || strncmp(path, folder, folder_length) || path[folder_length] != '/')
        return few;
    path[so_long] = 0;
    number = atomic_fetch_add(&writes, 1) + 1;
    if (atomic_exchange(&full, 0)) {
        few = -1;
    } else if (!strcmp(kind, "lie") && strcmp(call, "pwrite64")) {
        return few;
    } else if (number == first || (for_good && number > first)) {
        if (!strcmp(kind, "one"))
            few = 1;
        else if (!strcmp(kind, "none-full"))
            few = 0;
        else
            few = (ssize_t)(length / 2);
        if (!strcmp(kind, "lie"))
            *lie = length;
        /* A write of nothing is no short write, but the end of all hope. */
        else if (few == 0 && strcmp(kind, "none-full"))
            few = 1;
        atomic_store(&full, !strcmp(kind, "half-full") || !strcmp(kind, "none-full"));
    }
    if (few != (ssize_t)length)
        tell(line, snprintf(line, sizeof line, "cut %s %zu %zd %s\n", call, length, few, path));
    return few;
}

static ssize_t answer(ssize_t written, size_t lie)
{
    return written >= 0 && lie ? (ssize_t)lie : written;
}

static ssize_t no_room(void)
{
    errno = ENOSPC;
    return -1;
}

ssize_t write(int descriptor, const void *bytes, size_t length)
{
    size_t lie;
    ssize_t few = allowed("write", descriptor, length, &lie);
    return few < 0 ? no_room() : answer(syscall(SYS_write, descriptor, bytes, (size_t)few), lie);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t length, off64_t at)
{
    size_t lie;
    ssize_t few = allowed("pwrite64", descriptor, length, &lie);
    return few < 0 ? no_room() : answer(syscall(SYS_pwrite64, descriptor, bytes, (size_t)few, at), lie);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t length, off_t at)
{
    return pwrite64(descriptor, bytes, length, at);
}

/* Of several parts that are cut, no more than the first is written. */
static ssize_t vectored(const char *call, int descriptor, const struct iovec *parts, int count, off64_t at)
{
    size_t length = 0, lie;
    struct iovec part;
    ssize_t few;

    for (int i = 0; i < count; i++)
        length += parts[i].iov_len;
    few = allowed(call, descriptor, length, &lie);
    if (few < 0)
        return no_room();
    if (few != (ssize_t)length) {
        part = parts[0];
        part.iov_len = (size_t)few < part.iov_len ? (size_t)few : part.iov_len;
        parts = &part;
        count = 1;
    }
    if (at < 0)
        return answer(syscall(SYS_writev, descriptor, parts, count), lie);
    return answer(syscall(SYS_pwritev, descriptor, parts, count, at, 0L), lie);
}

ssize_t writev(int descriptor, const struct iovec *parts, int count)
{
    return vectored("writev", descriptor, parts, count, -1);
}

ssize_t pwritev64(int descriptor, const struct iovec *parts, int count, off64_t at)
{
    return vectored("pwritev", descriptor, parts, count, at);
}

ssize_t pwritev(int descriptor, const struct iovec *parts, int count, off_t at)
{
    return pwritev64(descriptor, parts, count, at);
}
