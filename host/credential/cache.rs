//! Keeps credentials while they are good, and renews them before they end.
//!
//! In: who asks for which cluster's credential, and the mint that makes it.
//! Out: a credential that may be used now, or why there is none. Never: two
//! mints of one key at once; a secret in a log; a credential on disk.

pub mod key;
