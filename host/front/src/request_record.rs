//! Opens the decision record of a request.

use std::sync::Arc;

use http::request;

use crate::snapshot::Snapshot;
use tollgate_proxy::record::{OpenRecord, Recorder};
use tollgate_proxy::server::Client;

/// Opens the record of a request on any listener that decides.
///
/// - `head`: `None` if it was not read.
pub fn open_record(
    recorder: &Arc<Recorder>,
    head: Option<&request::Parts>,
    client: &Client,
    snapshot: &Snapshot,
) -> OpenRecord {
    let mut record = match head {
        Some(head) => recorder.open(head.method.clone(), head.uri.path()),
        None => recorder.open_unread(),
    };
    record.note(|record| {
        record.generation = snapshot.generation;
        record.client = Some(client.address());
        record.peer = Some(client.peer_address());
    });
    record.trace(head.map(|head| &head.headers));
    record
}
