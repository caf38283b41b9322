//! Limits the length of texts from outside, in bytes.
//!
//! Invariant: a text that is too long is an error, never truncated, since a truncated name would
//! be another name.

use crate::Error;

/// Name of a token, chosen by its owner.
pub const TOKEN_NAME: usize = 255;
/// Name of a person from the directory, a mapping or an account.
pub const USERNAME: usize = 1024;
/// Scopes of a token, joined with spaces.
pub const SCOPES: usize = 1024;
/// Identity of an agent besides its number.
pub const AGENT: usize = 1024;
/// Text form of a session's id.
pub const SESSION: usize = 256;
/// Action of an audit event.
pub const ACTION: usize = 64;
/// Address of a client.
pub const CLIENT: usize = 128;
/// URL of a cluster's server or of a replica.
pub const SERVER: usize = 2048;
/// Most unexpired tokens of one person, including revoked ones. This is a number, not a length.
pub const TOKENS: u32 = 1_000;
/// As [`TOKENS`], for browser sessions.
pub const BROWSER_SESSIONS: u32 = 100;
/// Most unexpired logins of one person. This is a number, not a length.
pub const LOGINS: u32 = 100;
/// Claims of a login, as JSON.
pub const CLAIMS: usize = 64 * 1024;
/// Name that the command line gives itself, such as `alice@laptop`.
pub const CLIENT_NAME: usize = 255;
/// Issuer, subject or `sid` of a login.
pub const ISSUER: usize = 2048;
/// Why a person is locked.
pub const REASON: usize = 1024;
/// Most people who are locked at once. This is a number, not a length.
pub const LOCKS: u32 = 1_000;
/// Most device codes that wait for a person, over all clients and for one address (in IPv6 one /64). These
/// are numbers, not lengths.
pub const DEVICE_CODES: (u32, u32) = (10_000, 20);
/// Most codes of one login that wait for `tollgate login`. This is a number, not a length.
pub const APPROVED_CODES: u32 = 20;
/// Most unexpired tokens that one login made for kubectl. This is a number, not a length.
pub const LOGIN_TOKENS: u32 = 1_000;
/// Details of an audit event, as JSON.
pub const DETAILS: usize = 16 * 1024;

pub(crate) fn check(field: &'static str, text: &str, allowed: usize) -> Result<(), Error> {
    let observed = text.len();
    if observed > allowed {
        return Err(Error::TooLong {
            field,
            observed,
            allowed,
        });
    }
    if text.contains('\0') {
        return Err(Error::Character(field));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_in_bytes_and_inclusive() {
        assert_eq!(check("name", "éé", 4), Ok(()));
        assert_eq!(
            check("name", "éé", 3),
            Err(Error::TooLong {
                field: "name",
                observed: 4,
                allowed: 3
            })
        );
    }

    #[test]
    fn every_character_except_nul_is_allowed() {
        assert_eq!(check("name", "a\u{1}\u{10ffff}", 16), Ok(()));
        assert_eq!(check("name", "a\0", 16), Err(Error::Character("name")));
    }
}
