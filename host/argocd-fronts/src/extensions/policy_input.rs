//! Keeps what the policy's input about a call was made of.
//!
//! Security: the query is not kept, as it may hold secrets.

use std::sync::Arc;

use crate::extensions::call::Call;
use crate::extensions::evaluation::ExtensionEvaluation;
use tollgate_core::diagnostic::shortened;
use tollgate_front::policy_input::{ATTRIBUTE_BYTES, json, json_time};
use tollgate_proxy::record::{LeftOut, OpenRecord, PolicyInputSource};
use tollgate_rego::{Bundle, ExtensionRequest, Front};

/// Most bytes of a path that are kept. Callers choose paths.
const PATH_BYTES: usize = 1_024;

/// Size of an entry of a list of the target, in bytes.
const LIST_ENTRY_BYTES: usize = 300;

const QUERY: LeftOut = LeftOut {
    field: "request.query",
    why: "a query may hold secrets",
};
const LONG_PATH: LeftOut = LeftOut {
    field: "request.path",
    why: "only its first 1024 bytes are kept",
};
const CANDIDATES: LeftOut = LeftOut {
    field: "rbac.candidates",
    why: "the policy that decided does not read it, so it was not looked up",
};

/// Takes some 100 ns: it counts references and copies method and path.
///
/// - `time`: as in the input.
pub(super) fn keep(
    bundle: &Bundle,
    evaluation: &Arc<ExtensionEvaluation>,
    call: &Call,
    time: Option<String>,
    record: &mut OpenRecord,
) {
    let left_out = [
        (call.query.is_some(), QUERY),
        (call.rest.len() > PATH_BYTES, LONG_PATH),
        (!bundle.dependencies().candidates, CANDIDATES),
    ];
    let evaluation = Arc::clone(evaluation);
    let (method, path) = (call.method.clone(), shortened(&call.rest, PATH_BYTES));
    let list_entries = usize::try_from(evaluation.facts.target.list_entries).unwrap_or(usize::MAX);
    let shared = usize::try_from(evaluation.size_kib()).unwrap_or(usize::MAX);
    let size = shared
        .saturating_mul(1_024)
        .saturating_add(list_entries.saturating_mul(LIST_ENTRY_BYTES))
        .saturating_add(method.as_str().len().saturating_add(path.len()))
        .saturating_add(ATTRIBUTE_BYTES);
    let at = record.at();
    record.keep_input(PolicyInputSource::new(Front::Extensions, size, move || {
        let request = ExtensionRequest {
            method: method.as_str(),
            path: &path,
            query: None,
            project: None,
        };
        let time = json_time(time.as_deref(), at);
        let input = evaluation.facts.input(&evaluation.caller, request, time.as_deref());
        let left_out = left_out.iter().filter(|(is_left_out, _)| *is_left_out);
        (json(&input), left_out.map(|(_, field)| *field).collect())
    }));
}
