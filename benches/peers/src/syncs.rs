//! Counts the syncs that a system really makes, by tracing the processes that make them.

use crate::job::Result;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How many syncs of `process` and its children ended well while `work` ran, also of those that they start meanwhile.
pub fn count(process: u32, folder: &Path, work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let (log, processes) = (folder.join("syncs"), family(process));
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e", "trace=fsync,fdatasync", "-o"]).arg(&log);
    for process in &processes {
        strace.args(["-p", &process.to_string()]);
    }
    let mut strace = strace.stdin(Stdio::null()).spawn()?;
    let worked = attached(&mut strace, &processes).and_then(|()| work());
    // It lets go of what it traces, and ends.
    Command::new("kill").arg(strace.id().to_string()).status()?;
    strace.wait()?;
    worked?;
    let text = fs::read_to_string(&log)?;
    fs::remove_file(&log)?;
    Ok(text.lines().filter(|line| line.ends_with("= 0")).count() as u64)
}

/// Whether there is an strace to count with.
pub fn countable() -> bool {
    let strace = Command::new("strace").arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    strace.is_ok_and(|status| status.success())
}

/// Waits until every thread of `processes` is traced.
fn attached(strace: &mut Child, processes: &[u32]) -> Result<()> {
    let start = Instant::now();
    let own = strace.id().to_string();
    while !processes.iter().all(|process| traced(*process, &own)) {
        if let Some(status) = strace.try_wait()? {
            return Err(format!(
                "strace cannot trace {processes:?}: {status}; where only root may trace, run it as root"
            )
            .into());
        }
        if start.elapsed() > Duration::from_secs(20) {
            return Err(format!("strace did not get hold of {processes:?} within 20 s").into());
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

fn traced(process: u32, tracer: &str) -> bool {
    // What has ended meanwhile syncs nothing more.
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return true };
    threads.flatten().all(|thread| {
        let Ok(status) = fs::read_to_string(thread.path().join("status")) else { return true };
        let by = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        by.is_some_and(|by| by.trim() == tracer)
    })
}

fn family(process: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    [process].into_iter().chain(children.split_whitespace().filter_map(|child| child.parse().ok())).collect()
}
