//! Must be found: two threads that write to one place. A run in which it passes shows nothing.

#[test]
fn canary() {
    static mut WRITTEN: u64 = 0;
    let write = || {
        for number in 0..1_000 {
            // SAFETY: there is none; that is what has to be told.
            unsafe { *(&raw mut WRITTEN) = number };
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(write);
        scope.spawn(write);
    });
}
