//! Removes the secrets of a call from texts and bodies that people or guests read.
//!
//! This is best effort: a guest may still find another way to encode a secret.

use std::ops::Range;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::GeneralPurpose;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use memchr::memmem;
use regex::Regex;
use zeroize::{Zeroize as _, Zeroizing};

use crate::bindings::provider::tollgate::plugin::secrets::Encoding;
use crate::bindings::secret::encode;
use tollgate_core::diagnostic::one_line;

/// Secrets shorter than this are not searched for, because they would match by chance.
const MIN_SECRET_BYTES: usize = 6;
const MARK: &str = "[redacted]";

/// Matches texts that look like credentials, wherever they come from.
static CREDENTIAL_REGEX: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"k8s-aws-v1\.[A-Za-z0-9_=-]+|eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{2,}\.[A-Za-z0-9_-]*").ok()
});

/// Removes the secrets that one call has seen from texts.
#[derive(Default)]
pub(crate) struct Redactor {
    known: Vec<Arc<Zeroizing<Vec<u8>>>>,
}

impl Redactor {
    pub(crate) fn add(&mut self, secret: Arc<Zeroizing<Vec<u8>>>) {
        if secret.len() >= MIN_SECRET_BYTES && !self.known.iter().any(|known| **known == *secret) {
            self.known.push(secret);
        }
    }

    /// `text` in one line of at most `most` bytes, without secrets.
    pub(crate) fn redact_line(&self, text: &str, most: usize) -> String {
        let mut bytes = text.as_bytes().to_vec();
        self.replace_secrets(&mut bytes, MARK.as_bytes());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        bytes.zeroize();
        let text = match &*CREDENTIAL_REGEX {
            Some(shapes) => shapes.replace_all(&text, MARK).into_owned(),
            // A pattern that does not compile must not let a token through.
            None => MARK.to_owned(),
        };
        // Last, because a secret that is cut in half would not be found.
        one_line(&text, most)
    }

    /// Replaces every known secret within `bytes`, however it is encoded.
    ///
    /// All secrets are searched for before any is replaced, so that a secret that is part of
    /// another one does not hide the rest of it.
    pub(crate) fn replace_secrets(&self, bytes: &mut Vec<u8>, mark: &[u8]) {
        let mut found: Vec<Range<usize>> = Vec::new();
        // No form has fewer bytes than the secret.
        for secret in self.known.iter().filter(|secret| secret.len() <= bytes.len()) {
            for form in encoded_forms(secret) {
                let places = memmem::find_iter(bytes, form.as_slice());
                found.extend(places.map(|at| at..at + form.len()));
            }
        }
        if found.is_empty() {
            return;
        }
        found.sort_unstable_by_key(|range| range.start);
        let mut cleaned = Vec::with_capacity(bytes.len());
        let mut from = 0;
        for range in found {
            if range.start >= from {
                cleaned.extend_from_slice(bytes.get(from..range.start).unwrap_or_default());
                cleaned.extend_from_slice(mark);
            }
            from = from.max(range.end);
        }
        cleaned.extend_from_slice(bytes.get(from..).unwrap_or_default());
        bytes.zeroize();
        *bytes = cleaned;
    }
}

/// The encoded forms in which a secret may appear, without duplicates and without those that are
/// too short.
fn encoded_forms(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut encoded_forms: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    let mut add = |form: Zeroizing<Vec<u8>>| {
        if form.len() >= MIN_SECRET_BYTES && !encoded_forms.contains(&form) {
            encoded_forms.push(form);
        }
    };
    for encoding in [
        Encoding::Raw,
        Encoding::Form,
        Encoding::Percent,
        Encoding::Json,
        Encoding::Base64urlNopad,
    ] {
        let mut written = Zeroizing::new(Vec::with_capacity(secret.len().saturating_mul(6).saturating_add(2)));
        if encode(secret, encoding, &mut written).is_err() {
            continue;
        }
        match encoding {
            Encoding::Form | Encoding::Percent => {
                add(lower_escapes(&written));
                add(written);
            }
            Encoding::Json => {
                let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
                add(Zeroizing::new(inner.to_vec()));
                // As Go's and PHP's encoders write it.
                add(escaped(inner, |byte| {
                    matches!(byte, b'<' | b'>' | b'&').then(|| format!("\\u{byte:04x}"))
                }));
                add(escaped(inner, |byte| (byte == b'/').then(|| "\\/".to_owned())));
            }
            _ => add(written),
        }
    }
    add(Zeroizing::new(STANDARD_NO_PAD.encode(secret).into_bytes()));
    for shift in 0..3 {
        add(base64_core(secret, shift, &STANDARD_NO_PAD));
        add(base64_core(secret, shift, &URL_SAFE_NO_PAD));
    }
    encoded_forms
}

/// The same with `%2f` in place of `%2F`.
fn lower_escapes(written: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut lower = Zeroizing::new(written.to_vec());
    let mut left = 0;
    for byte in lower.iter_mut() {
        if left > 0 {
            byte.make_ascii_lowercase();
            left -= 1;
        } else if *byte == b'%' {
            left = 2;
        }
    }
    lower
}

/// The same with some bytes written otherwise.
fn escaped(text: &[u8], escape: impl Fn(u8) -> Option<String>) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(text.len().saturating_mul(6)));
    for byte in text {
        match escape(*byte) {
            Some(written) => out.extend_from_slice(written.as_bytes()),
            None => out.push(*byte),
        }
    }
    out
}

/// The base64 characters that do not depend on the text before and after the secret, if `shift`
/// bytes (modulo 3) precede it. This also finds `user:secret`.
fn base64_core(secret: &[u8], shift: usize, engine: &GeneralPurpose) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.reserve_exact(secret.len());
    padded.extend_from_slice(secret);
    let text = Zeroizing::new(engine.encode(&*padded));
    // The characters at both ends also have bits of the neighbors, so they are left out.
    let (from, to) = ((shift * 8).div_ceil(6), padded.len() * 8 / 6);
    Zeroizing::new(text.as_bytes().get(from..to).unwrap_or_default().to_vec())
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
    fn secrets_are_redacted_in_every_encoding() {
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
            let line = redactor.redact_line(&format!("x {written} y"), 200);
            assert_eq!(line, "x [redacted] y", "{written}");
        }
        assert_eq!(redactor.redact_line("nothing here", 200), "nothing here");
    }

    #[test]
    fn overlapping_secrets_are_redacted_completely() {
        let redactor = redactor(&["abcdef", "abcdefghij", "hijklmnop"]);
        assert_eq!(redactor.redact_line("x abcdefghij y", 200), "x [redacted] y");
        assert_eq!(redactor.redact_line("x abcdefghijklmnop y", 200), "x [redacted] y");
        assert_eq!(
            redactor.redact_line("abcdefabcdef ghij", 200),
            "[redacted][redacted] ghij"
        );
    }

    #[test]
    fn secrets_in_encodings_of_other_writers_are_redacted() {
        let redactor = redactor(&["s3cr/t&pass<word>"]);
        for written in [
            "s3cr%2ft%26pass%3cword%3e",
            "s3cr/t\\u0026pass\\u003cword\\u003e",
            "s3cr\\/t&pass<word>",
        ] {
            assert_eq!(redactor.redact_line(written, 200), "[redacted]", "{written}");
        }
        // Base64 in which the secret begins at each offset of a group, as in `user:secret`.
        for prefix in ["user:", "me:", "x:", ""] {
            let text = STANDARD_NO_PAD.encode(format!("{prefix}s3cr/t&pass<word>\n"));
            let line = redactor.redact_line(&text, 200);
            assert!(
                line.contains(MARK) && line.len() <= prefix.len() * 2 + MARK.len() + 4,
                "{prefix}: {line}"
            );
        }
    }

    #[test]
    fn token_like_text_is_redacted() {
        let redactor = redactor(&[]);
        for text in ["eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "k8s-aws-v1.aHR0cHM6Ly9zdHM"] {
            assert_eq!(redactor.redact_line(text, 200), "[redacted]");
        }
        assert!(!redactor.redact_line("a\nb\u{7}", 200).contains('\n'));
        assert!(redactor.redact_line(&"x".repeat(2000), 512).len() <= 512);
    }

    #[test]
    fn short_secrets_are_not_redacted() {
        assert_eq!(redactor(&["abc"]).redact_line("abcdef", 200), "abcdef");
    }
}
