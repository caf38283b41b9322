//! Who sends the request.
//!
//! In: request head. Out: [`Principal`], which only this stage can make.
//! Refuses: 401. Never: a decision about what the caller may do.
