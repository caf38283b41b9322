//! The text that is signed.
//!
//! In: a request. Out: its canonical form in pieces. Never: a session token, for
//! pieces only say where it stands.

use crate::encoding::percent;

/// Name of the algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A piece of a text with a session token in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Plain text.
    Text(String),
    /// The session token, as it is.
    SessionToken,
    /// The session token, escaped as RFC 3986 says.
    SessionTokenEscaped,
}

impl Piece {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A field that is signed: lower-case name, value.
pub type Header<'a> = (&'a str, String);

/// What a key is derived for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `20260102T030405Z`.
    pub date_time: String,
    /// Such as `us-west-2`.
    pub region: String,
    /// Such as `sts`.
    pub service: String,
}

impl Scope {
    /// `20260102`.
    pub fn date(&self) -> &str {
        self.date_time.split('T').next().unwrap_or_default()
    }

    /// What the key is derived over, in order.
    pub fn steps(&self) -> [&str; 4] {
        [self.date(), &self.region, &self.service, "aws4_request"]
    }

    /// Access key and scope, as the parameter and the header have it.
    pub fn credential(&self, access_key_id: &str) -> String {
        format!("{access_key_id}/{}", self.steps().join("/"))
    }

    /// What is signed in the end; `digest` is the canonical request's in hex.
    pub fn string_to_sign(&self, digest: &str) -> String {
        format!("{ALGORITHM}\n{}\n{}\n{digest}", self.date_time, self.steps().join("/"))
    }

    /// The field `authorization`.
    pub fn authorization(&self, access_key_id: &str, signed_headers: &str, signature: &str) -> String {
        format!(
            "{ALGORITHM} Credential={}, SignedHeaders={signed_headers}, Signature={signature}",
            self.credential(access_key_id)
        )
    }
}

/// A request whose signature stands in its query.
#[derive(Clone, Debug)]
pub struct Presigned<'a> {
    /// Method.
    pub method: &'a str,
    /// Pairs of the query besides those of the signature, not escaped.
    pub query: &'a [(&'a str, &'a str)],
    /// Fields to sign; sorted by name.
    pub headers: &'a [Header<'a>],
    /// Lower-case hex of SHA-256 of the body.
    pub payload_digest: &'a str,
    /// Seconds the signature is good for.
    pub expires: u32,
    /// Key that signs.
    pub access_key_id: &'a str,
    /// Whether a session token belongs to the key.
    pub session: bool,
}

/// Query and canonical request; the path is `/`. The query still lacks
/// `&X-Amz-Signature=…`.
pub fn presigned(request: &Presigned<'_>, scope: &Scope) -> (Vec<Piece>, Vec<Piece>) {
    let plain = |(name, value): &(&str, &str)| (percent(name), Piece::Text(percent(value)));
    let own = |name: &str, value: String| (name.to_owned(), Piece::Text(percent(&value)));
    let mut pairs: Vec<(String, Piece)> = request.query.iter().map(plain).collect();
    pairs.push(own("X-Amz-Algorithm", ALGORITHM.to_owned()));
    pairs.push(own("X-Amz-Credential", scope.credential(request.access_key_id)));
    pairs.push(own("X-Amz-Date", scope.date_time.clone()));
    pairs.push(own("X-Amz-Expires", request.expires.to_string()));
    if request.session {
        pairs.push(("X-Amz-Security-Token".to_owned(), Piece::SessionTokenEscaped));
    }
    pairs.push(own("X-Amz-SignedHeaders", names(request.headers)));
    // The order of bytes; repeated names keep theirs, and nobody here has any.
    pairs.sort_by(|(one, _), (two, _)| one.cmp(two));

    let mut query = Vec::new();
    for (index, (name, value)) in pairs.into_iter().enumerate() {
        let separator = if index == 0 { "" } else { "&" };
        query.push(Piece::Text(format!("{separator}{name}=")));
        query.push(value);
    }
    let query = merged(query);
    let mut canonical = vec![Piece::Text(format!("{}\n/\n", request.method))];
    canonical.extend(query.iter().cloned());
    canonical.push(Piece::text("\n"));
    for (name, value) in request.headers {
        canonical.push(Piece::Text(format!("{name}:{value}\n")));
    }
    canonical.push(Piece::Text(format!(
        "\n{}\n{}",
        names(request.headers),
        request.payload_digest
    )));
    (query, merged(canonical))
}

/// A request whose signature stands in its fields.
#[derive(Clone, Debug)]
pub struct Signed<'a> {
    /// Method.
    pub method: &'a str,
    /// Query, canonical already.
    pub query: &'a str,
    /// Fields to sign besides `x-amz-date` and `x-amz-security-token`.
    pub headers: &'a [Header<'a>],
    /// Lower-case hex of SHA-256 of the body.
    pub payload_digest: &'a str,
    /// Whether a session token belongs to the key.
    pub session: bool,
}

/// Canonical request and names of the signed fields; the path is `/`.
pub fn signed(request: &Signed<'_>, scope: &Scope) -> (Vec<Piece>, String) {
    let mut headers: Vec<(&str, Piece)> = request
        .headers
        .iter()
        .map(|(name, value)| (*name, Piece::text(value.trim())))
        .collect();
    headers.push(("x-amz-date", Piece::text(&scope.date_time)));
    if request.session {
        headers.push(("x-amz-security-token", Piece::SessionToken));
    }
    headers.sort_by_key(|(name, _)| *name);
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    let names = names.join(";");

    let mut canonical = vec![Piece::Text(format!("{}\n/\n{}\n", request.method, request.query))];
    for (name, value) in headers {
        canonical.push(Piece::Text(format!("{name}:")));
        canonical.push(value);
        canonical.push(Piece::text("\n"));
    }
    canonical.push(Piece::Text(format!("\n{names}\n{}", request.payload_digest)));
    (merged(canonical), names)
}

fn names(headers: &[Header<'_>]) -> String {
    let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
    names.join(";")
}

/// Neighboring texts as one.
fn merged(pieces: Vec<Piece>) -> Vec<Piece> {
    let mut merged: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (merged.last_mut(), piece) {
            (Some(Piece::Text(before)), Piece::Text(text)) => before.push_str(&text),
            (_, piece) => merged.push(piece),
        }
    }
    merged
}
