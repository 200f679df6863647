//! Everything that is logged at any level, by any thread of this process, as a common subscriber writes it: spans with
//! their fields when they open, change and close, and events. What goes through `log` is kept apart.

use std::io;
use std::sync::{Mutex, Once};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::FmtSpan;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static SET_UP: Once = Once::new();

/// Begins to capture, once for the whole process: the store has threads of its own.
pub fn capture() {
    SET_UP.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(LevelFilter::TRACE)
            .with_span_events(FmtSpan::FULL)
            .without_time()
            .with_writer(Log)
            .finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
        // What engines log through `log` comes the same way.
        tracing_log::LogTracer::init().unwrap();
    });
}

/// All lines so far.
pub fn lines() -> Vec<String> {
    String::from_utf8_lossy(&LOG.lock().unwrap()).lines().map(str::to_owned).collect()
}

/// Those of claimdb's that are of the store `name`.
pub fn lines_of(name: &str) -> Vec<String> {
    let of = |line: &String| line.contains(" claimdb: ") && line.contains(&format!("store=\"{name}\""));
    lines().into_iter().filter(of).collect()
}

#[derive(Debug, Clone, Copy)]
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}
