//! Errors of plugins: a failed load, a failed call, and a refusal.
//!
//! Invariant: a trap never reads as a refusal.
//!
//! Security: the only text of a guest in an error is the reason of a refusal.

use http::{HeaderName, StatusCode};

use tollgate_credential::{MintError, MintErrorClass};

/// Why the runtime cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The engine does not start, with and without a pool.
    #[error("the WebAssembly engine does not start")]
    Engine(#[source] wasmtime::Error),
    /// The thread that counts time for guests does not start.
    #[error("the thread that counts time for plugins does not start")]
    Ticker(#[source] std::io::Error),
}

/// Why a call returned no edits. Each error denies this message and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The plugin decided that the message must not go on.
    #[error("plugin `{plugin}` refuses with status `{status}`")]
    Refused {
        /// Plugin name.
        plugin: String,
        /// Status for the client, 400 to 599.
        status: StatusCode,
        /// Text the client may see: one line, at most 512 bytes.
        reason: String,
    },
    /// The guest failed.
    #[error("plugin `{plugin}` failed: {cause}")]
    Trap {
        /// Plugin name.
        plugin: String,
        /// How.
        cause: TrapCause,
    },
    /// The call took longer than its budget.
    #[error("plugin `{plugin}` took longer than `{allowed_ms}` ms")]
    Timeout {
        /// Plugin name.
        plugin: String,
        /// Milliseconds allowed.
        allowed_ms: u128,
    },
    /// The guest wanted more memory than its budget.
    #[error("plugin `{plugin}` wanted more than `{allowed_bytes}` bytes of memory")]
    Memory {
        /// Plugin name.
        plugin: String,
        /// Bytes allowed.
        allowed_bytes: usize,
    },
    /// The guest returned an invalid value.
    #[error("plugin `{plugin}` returned {output}")]
    InvalidOutput {
        /// Plugin name.
        plugin: String,
        /// What is invalid.
        output: InvalidOutput,
    },
    /// No room for one more call within the time budget.
    #[error("plugin `{plugin}` has too many calls open")]
    Busy {
        /// Plugin name.
        plugin: String,
    },
}

impl CallError {
    /// A short name for metrics and records.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::Trap { .. } => "trap",
            Self::Timeout { .. } => "timeout",
            Self::Memory { .. } => "memory",
            Self::InvalidOutput { .. } => "invalid_output",
            Self::Busy { .. } => "busy",
        }
    }
}

/// How a guest failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrapCause {
    /// A trap or panic in the guest's own code.
    #[error("a trap")]
    Guest,
    /// Its stack ran over.
    #[error("a stack overflow")]
    Stack,
    /// It called the host more often than its budget.
    #[error("more host calls than allowed")]
    HostCalls,
    /// It handed the host more bytes than its budget.
    #[error("more data than a call may hand over")]
    HostData,
}

/// An invalid value that a guest returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutput {
    /// An edit of a field only the gateway may write.
    #[error("an edit of the field `{0}`, which belongs to the gateway")]
    ForbiddenHeader(HeaderName),
    /// A name that no header field can have.
    #[error("a name that no header field can have")]
    HeaderName,
    /// A value that no header field can have.
    #[error("a value that no header field can have")]
    HeaderValue,
    /// Too many edits in one answer.
    #[error("`{observed}` edits; at most `{allowed}` are allowed")]
    TooManyEdits {
        /// Edits returned.
        observed: usize,
        /// Edits allowed.
        allowed: usize,
    },
    /// Too many bytes in one answer.
    #[error("`{observed}` bytes of edits; at most `{allowed}` are allowed")]
    TooManyBytes {
        /// Bytes returned.
        observed: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// A refusal whose status is not an error.
    #[error("a refusal with status `{0}`, which is not one of 400 to 599")]
    Status(u16),
    /// A prefix so short that it matches nearly every field.
    #[error("a prefix of less than `{0}` bytes")]
    ShortPrefix(usize),
}

/// Of a call of a provider or generator.
impl From<&CallError> for MintError {
    fn from(error: &CallError) -> Self {
        let (class, code) = match error {
            CallError::Busy { .. } => (MintErrorClass::Retryable, "plugin.busy"),
            CallError::Timeout { .. } | CallError::Memory { .. } => (MintErrorClass::Permanent, "plugin.budget"),
            CallError::Trap {
                cause: TrapCause::HostCalls | TrapCause::HostData,
                ..
            } => (MintErrorClass::Permanent, "plugin.budget"),
            CallError::Trap { .. } => (MintErrorClass::Permanent, "plugin.trap"),
            CallError::Refused { .. } | CallError::InvalidOutput { .. } => {
                (MintErrorClass::Permanent, "plugin.invalid_output")
            }
        };
        Self::new(class, code, &error.to_string())
    }
}
