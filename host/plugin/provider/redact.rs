//! Takes secrets out of what people and guests read.
//!
//! In: texts and bodies, the secrets of a call. Out: the same without them. Never:
//! a promise that a guest cannot find another way to write one.

use std::sync::{Arc, LazyLock};

use memchr::memmem;
use regex::Regex;
use zeroize::{Zeroize as _, Zeroizing};

use super::secret::encode;
use crate::plugin::bindings::provider::tollgate::plugin::secrets::Encoding;
use crate::plugin::edits::one_line;

/// Bytes of a message that are kept.
pub(crate) const MESSAGE_BYTES: usize = 512;
/// Secrets shorter than this are looked for nowhere: they would be found everywhere.
const SHORTEST: usize = 6;
/// What stands where a secret stood.
const MARK: &str = "[redacted]";

/// Texts that look like credentials, whoever made them.
static SHAPES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"k8s-aws-v1\.[A-Za-z0-9_=-]+|eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*").ok()
});

/// The secrets one call has seen.
#[derive(Default)]
pub(crate) struct Redactor {
    known: Vec<Arc<Zeroizing<Vec<u8>>>>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").field("known", &self.known.len()).finish()
    }
}

impl Redactor {
    /// Looks for `secret` from now on.
    pub(crate) fn add(&mut self, secret: Arc<Zeroizing<Vec<u8>>>) {
        if secret.len() >= SHORTEST && !self.known.iter().any(|known| **known == *secret) {
            self.known.push(secret);
        }
    }

    /// `text` in one line of at most `most` bytes, without secrets.
    pub(crate) fn line(&self, text: &str, most: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.cut(&mut bytes, MARK.as_bytes());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        bytes.zeroize();
        let text = match &*SHAPES {
            Some(shapes) => shapes.replace_all(&text, MARK).into_owned(),
            // A pattern that does not compile must not let a token through.
            None => MARK.to_owned(),
        };
        one_line(&text, most)
    }

    /// Replaces every known secret within `bytes`, however it is encoded.
    pub(crate) fn cut(&self, bytes: &mut Vec<u8>, mark: &[u8]) {
        for secret in &self.known {
            for encoding in [
                Encoding::Raw,
                Encoding::Form,
                Encoding::Percent,
                Encoding::Json,
                Encoding::Base64,
                Encoding::Base64urlNopad,
            ] {
                let mut written = Zeroizing::new(Vec::new());
                if encode(secret, encoding, &mut written).is_err() {
                    continue;
                }
                let wanted = match encoding {
                    Encoding::Json => written.get(1..written.len().saturating_sub(1)).unwrap_or_default(),
                    _ => &written,
                };
                replace(bytes, wanted, mark);
            }
        }
    }
}

fn replace(bytes: &mut Vec<u8>, wanted: &[u8], mark: &[u8]) {
    if wanted.len() < SHORTEST {
        return;
    }
    let found: Vec<usize> = memmem::find_iter(bytes, wanted).collect();
    if found.is_empty() {
        return;
    }
    let mut cleaned = Vec::with_capacity(bytes.len());
    let mut from = 0;
    for at in found {
        cleaned.extend_from_slice(bytes.get(from..at).unwrap_or_default());
        cleaned.extend_from_slice(mark);
        from = at + wanted.len();
    }
    cleaned.extend_from_slice(bytes.get(from..).unwrap_or_default());
    bytes.zeroize();
    *bytes = cleaned;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(secrets: &[&str]) -> Redactor {
        let mut redactor = Redactor::default();
        for secret in secrets {
            redactor.add(Arc::new(Zeroizing::new(secret.as_bytes().to_vec())));
        }
        redactor
    }

    #[test]
    fn secrets_go_in_every_encoding() {
        let redactor = redactor(&["a+b/c \"d\"", "hunter2"]);
        for written in [
            "a+b/c \"d\"",
            "a%2Bb%2Fc+%22d%22",
            "a%2Bb%2Fc%20%22d%22",
            "a+b/c \\\"d\\\"",
            "YStiL2MgImQi",
            "hunter2",
            "aHVudGVyMg",
        ] {
            let line = redactor.line(&format!("x {written} y"), 200);
            assert_eq!(line, "x [redacted] y", "{written}");
        }
        assert_eq!(redactor.line("nothing here", 200), "nothing here");
    }

    #[test]
    fn what_looks_like_a_token_goes_too() {
        let redactor = redactor(&[]);
        for text in ["eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "k8s-aws-v1.aHR0cHM6Ly9zdHM"] {
            assert_eq!(redactor.line(text, 200), "[redacted]");
        }
        assert!(!redactor.line("a\nb\u{7}", 200).contains('\n'));
        assert!(redactor.line(&"x".repeat(2000), MESSAGE_BYTES).len() <= MESSAGE_BYTES);
    }

    #[test]
    fn a_short_secret_is_not_looked_for() {
        assert_eq!(redactor(&["abc"]).line("abcdef", 200), "abcdef");
    }
}
