//! What both ends of a socket share.

use super::serve::Peer;
use serde::{Deserialize, Serialize};
use std::os::unix::net::UnixStream;

/// How many bytes the path of a socket has at most.
pub(super) const MAX_PATH: usize = if cfg!(target_os = "linux") { 108 } else { 104 };

/// A request, of which the version alone is read first.
#[derive(Serialize, Deserialize)]
pub(super) struct Request<'a> {
    pub(super) claimdb_admin: u64,
    #[serde(borrow)]
    pub(super) ask: Option<&'a serde_json::value::RawValue>,
}

pub(super) fn push_line(out: &mut Vec<u8>, line: &impl Serialize) {
    // Texts and numbers alone can always be written.
    if serde_json::to_writer(&mut *out, line).is_ok() {
        out.push(b'\n');
    }
}

/// Who is at the other end.
#[cfg(target_os = "linux")]
pub(super) fn peer(stream: &UnixStream) -> Option<Peer> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    Some(Peer { uid: peer.uid.as_raw(), gid: peer.gid.as_raw(), pid: peer.pid.as_raw_nonzero().get() })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn peer(_stream: &UnixStream) -> Option<Peer> {
    None
}
