//! What is written down about access, and how often.
//!
//! In: one entry a request. Out: rows of the store: reads of one kind in one
//! bucket with a count, everything else alone. Never: a refusal, an `exec` or a
//! change that is only counted; a request let through whose row could not be
//! written.
