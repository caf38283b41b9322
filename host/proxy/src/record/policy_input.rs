//! The inputs on which policies decided the latest requests, for `tollgate policy eval --decision` and
//! other tools that ask again.
//!
//! A request keeps only references to what its input was built from. The input is written out when
//! somebody asks for it.
//!
//! Security: an input contains no header field, token or body, because policies are given none. What else
//! may be secret is left out, and named in [`PolicyInput::left_out`].
//!
//! Invariant: the inputs of at most 1,000 decisions and 32 MiB are kept.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::Recorder;
use tollgate_rego::Front;

/// Most inputs that are kept.
pub const MAX_INPUTS: usize = 1_000;

/// Most bytes that the inputs keep alive together, approximately. What several of them share counts for
/// each.
pub const MAX_INPUT_BYTES: usize = 32 * 1024 * 1024;

/// The input of one decision, as operators see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PolicyInput {
    /// The decision.
    pub decision_id: Uuid,
    /// The front whose policy decided.
    pub front: Front,
    /// Digest of the bundle that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_sha256: Option<Arc<str>>,
    /// The input.
    pub input: Value,
    /// What the request had and the input lacks.
    pub left_out: Vec<LeftOut>,
}

/// A field that an input lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its path, such as `request.query`.
    pub field: &'static str,
    /// Why it is left out.
    pub why: &'static str,
}

/// Why there is no input of a decision. The texts are for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyInputError {
    /// The decision is not among the latest.
    #[error(
        "this replica has no decision `{0}`: it keeps the latest ones in memory (`decisions.keep`) and loses them when \
         it restarts; ask the replica that decided, or send the request again and use the id of that decision"
    )]
    UnknownDecision(Uuid),
    /// The request ended before a policy was asked, with this reason code.
    #[error("decision `{id}` has no input, because no policy was asked: the request ended with `{reason}` before")]
    NoPolicy {
        /// The decision.
        id: Uuid,
        /// Its reason code.
        reason: &'static str,
    },
    /// The policy of ApplicationSets has many inputs for one decision.
    #[error(
        "decision `{0}` has no single input: the policy of ApplicationSets is asked about the set and about each part \
         of it; write the input of the part that matters by hand"
    )]
    ManyInputs(Uuid),
    /// Later decisions took its place.
    #[error(
        "the input of decision `{0}` is gone: those of the latest {MAX_INPUTS} decisions are kept, in at most \
         {mib} MiB; send the request again and use the id of that decision", mib = MAX_INPUT_BYTES >> 20
    )]
    Displaced(Uuid),
}

/// What the input of one decision is made of.
#[derive(derive_more::Debug)]
pub struct PolicyInputSource {
    front: Front,
    size_bytes: usize,
    #[debug(skip)]
    render: Box<dyn Fn() -> (Value, Vec<LeftOut>) + Send + Sync>,
}

impl PolicyInputSource {
    /// - `size_bytes`: what `render` keeps alive, approximately.
    /// - `render`: writes the input out, with what it leaves out. Called when an operator asks.
    pub fn new(
        front: Front,
        size_bytes: usize,
        render: impl Fn() -> (Value, Vec<LeftOut>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            front,
            size_bytes,
            render: Box::new(render),
        }
    }
}

/// The latest inputs, oldest first.
#[derive(Debug, Default)]
pub(super) struct RecentInputs {
    inputs: VecDeque<Arc<PolicyInputSource>>,
    size_bytes: usize,
}

impl RecentInputs {
    /// Adds an input. Returns those that it displaces, to be freed without the lock.
    pub(super) fn push(&mut self, input: Arc<PolicyInputSource>) -> Vec<Arc<PolicyInputSource>> {
        self.size_bytes = self.size_bytes.saturating_add(input.size_bytes);
        self.inputs.push_back(input);
        let mut displaced = Vec::new();
        // An input beyond the bound displaces all others, and then itself.
        while self.inputs.len() > MAX_INPUTS || self.size_bytes > MAX_INPUT_BYTES {
            let Some(oldest) = self.inputs.pop_front() else { break };
            self.size_bytes = self.size_bytes.saturating_sub(oldest.size_bytes);
            displaced.push(oldest);
        }
        displaced
    }
}

impl Recorder {
    /// The input on which the policy made decision `id`.
    ///
    /// Writes the input out, without a lock that requests wait for.
    ///
    /// # Errors
    /// Every [`PolicyInputError`] says what an operator can do.
    pub fn policy_input(&self, id: Uuid) -> Result<PolicyInput, PolicyInputError> {
        let record = self.find(id).ok_or(PolicyInputError::UnknownDecision(id))?;
        let Some(kept) = &record.input else {
            return Err(match (record.front, &record.principal) {
                ("applicationsets", Some(_)) => PolicyInputError::ManyInputs(id),
                _ => PolicyInputError::NoPolicy {
                    id,
                    reason: record.reason,
                },
            });
        };
        // A record holds its input weakly, so only the bounds of `RecentInputs` decide how long it lives.
        let source = Weak::upgrade(kept).ok_or(PolicyInputError::Displaced(id))?;
        let (input, left_out) = (source.render)();
        Ok(PolicyInput {
            decision_id: id,
            front: source.front,
            policy_sha256: record.policy.clone(),
            input,
            left_out,
        })
    }
}
