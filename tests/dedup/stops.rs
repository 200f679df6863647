//! Runs that do not get to the end.

use crate::place::{Numbers, Place, first_seen, lines, made_up};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};

/// What a pipe holds on Linux unless told otherwise.
const PIPE: usize = 64 << 10;

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    // More than a pipe holds, so that one is being written when the reader goes.
    const BATCH: usize = 2_000;
    let input = made_up(20_000);
    let expected = first_seen(&input);
    let place = Place::new();
    let file = place.file("input", &input);
    let args = ["--batch", "2000"];
    let mut child =
        place.dedup(&args).arg(&file).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Not a byte more than these lines, which all have the same length.
    let mut taken = vec![0; 3_000 * lines(&expected)[0].len()];
    let mut out = child.stdout.take().unwrap();
    out.read_exact(&mut taken).unwrap();
    drop(out);
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    let but_the_store: Vec<_> = told.lines().filter(|line| !line.starts_with("new store: ")).collect();
    assert_eq!((ended.status.code(), but_the_store), (Some(0), Vec::new()), "{told}");
    assert!(expected.starts_with(&taken));

    let rest = place.over(&file, &args);
    assert_eq!(rest.code, Some(0), "{}", rest.err);
    assert!(expected.ends_with(&rest.out), "the rest is the end of what there is, in order");
    let recorded = expected.len() - rest.out.len();
    assert!(
        recorded <= taken.len() + PIPE,
        "{recorded} bytes were recorded, more than can have been written"
    );
    let again = lines(&taken).len().saturating_sub(lines(&expected[..recorded]).len());
    assert!(again <= BATCH, "{again} lines came twice");
}

/// Runs it over `file`, kills it once `count` lines were read, and gives all that it wrote.
fn killed_after(place: &Place, file: &Path, args: &[&str], count: u64) -> (Vec<u8>, bool) {
    let mut child: Child = place
        .dedup(args)
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command can be started");
    let mut out = BufReader::with_capacity(256, child.stdout.take().expect("it is a pipe"));
    let mut wrote = Vec::new();
    for _ in 0..count {
        out.read_until(b'\n', &mut wrote).expect("a pipe can be read");
    }
    child.kill().expect("a child can be killed");
    out.read_to_end(&mut wrote).expect("a pipe can be read");
    let killed = child.wait().expect("a child ends").signal().is_some();
    (wrote, killed)
}

#[test]
fn killed_and_run_again_no_line_is_lost_and_at_most_a_batch_comes_twice() {
    let repeating = made_up(12_000);
    let fresh = first_seen(&made_up(2_000));
    let mut numbers = Numbers(9);
    let mut kills = 0;
    // Where each line is new, all lines of a batch come again, and one too many in flight shows.
    let runs = [(7_u64, "1", &fresh), (100, "2", &fresh), (1_000, "2", &repeating), (1_000, "8", &repeating)];
    for (batch, threads, input) in runs {
        let expected = first_seen(input);
        let distinct = lines(&expected).len() as u64;
        let batch_text = batch.to_string();
        let args = ["--batch", batch_text.as_str(), "--threads", threads];
        // Several kills on one store, and then a run to the end.
        let place = Place::new();
        let file = place.file("input", input);
        let mut times = HashMap::<Vec<u8>, u64>::new();
        let mut count = |wrote: &[u8]| {
            // The last line may be cut short: that one has not come out.
            for line in lines(wrote).into_iter().filter(|line| line.ends_with(b"\n")) {
                *times.entry(line.to_vec()).or_default() += 1;
            }
        };
        let mut rounds = 0;
        for _ in 0..5 {
            let after = numbers.below(distinct / 8);
            let (wrote, killed) = killed_after(&place, &file, &args, after);
            count(&wrote);
            rounds += u64::from(killed);
        }
        kills += rounds;
        let last = place.over(&file, &args);
        assert_eq!(last.code, Some(0), "{}", last.err);
        count(&last.out);
        let what = format!("batch {batch}, threads {threads}, {rounds} kills");
        for line in lines(&expected) {
            assert!(times.contains_key(line), "{what}: lost {}", String::from_utf8_lossy(line));
        }
        assert_eq!(times.len() as u64, distinct, "{what}: a line came out that is not in the input");
        let repeated: u64 = times.values().map(|times| times - 1).sum();
        assert!(repeated <= batch * rounds, "{what}: {repeated} lines came out again");
        place.over(&file, &args).wrote(b"");
    }
    assert!(kills >= 12, "only {kills} runs were killed before they ended");
}

/// A second run is refused by the engine's own lock; the first one cannot tell its folder from another's any more, and ends.
#[test]
fn a_lock_file_that_is_deleted_lets_no_second_run_in() {
    let place = Place::new();
    let mut command = place.dedup(&["-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut first = command.spawn().unwrap();
    let (mut to, mut from) = (first.stdin.take().unwrap(), BufReader::new(first.stdout.take().unwrap()));
    to.write_all(b"one\n").unwrap();
    let mut answer = String::new();
    from.read_line(&mut answer).unwrap();
    assert_eq!(answer, "one\n");
    std::fs::remove_file(place.path("store").join("lock")).unwrap();
    let second = place.fed(b"two\n", &[]);
    assert_eq!((second.code, second.out.len()), (Some(3), 0), "{}", second.err);
    // Whether the first has recorded its first line by then or not.
    let _ = to.write_all(b"three\n");
    drop(to);
    let mut rest = String::new();
    from.read_to_string(&mut rest).unwrap();
    let ended = first.wait_with_output().unwrap();
    let told = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("its file `lock` was deleted"), "{told}");
    let again = place.fed(b"one\ntwo\nthree\n", &[]);
    assert_eq!(again.code, Some(0), "{}", again.err);
    let again = String::from_utf8(again.out).unwrap();
    assert!(again.ends_with("two\nthree\n"), "P8 remembered is for what was recorded alone: {again}");
}
