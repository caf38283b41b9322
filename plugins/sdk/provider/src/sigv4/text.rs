//! Builds the text that is signed: the canonical form of a request, in pieces.
//!
//! Security: no piece contains the session token. Pieces only mark its position.

use crate::encoding::percent;

/// Name of the algorithm.
const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A piece of a text that may contain the session token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Plain text.
    Text(String),
    /// The session token, not escaped.
    SessionToken,
    /// The session token, percent-encoded (RFC 3986).
    SessionTokenEscaped,
}

impl Piece {
    fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// A signed header field: its name in lower case, and its value.
pub type Header<'a> = (&'a str, String);

/// The credential scope that a signing key is derived for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// `20260102T030405Z`.
    pub date_time: String,
    /// A region such as `us-west-2`.
    pub region: String,
    /// A service such as `sts`.
    pub service: String,
}

impl Scope {
    /// `20260102`.
    pub fn date(&self) -> &str {
        self.date_time.split('T').next().unwrap_or_default()
    }

    /// The values that the signing key is derived from, in order.
    pub fn steps(&self) -> [&str; 4] {
        [self.date(), &self.region, &self.service, "aws4_request"]
    }

    /// The access key id and the scope, as `X-Amz-Credential` and `authorization` contain them.
    pub fn credential(&self, access_key_id: &str) -> String {
        format!("{access_key_id}/{}", self.steps().join("/"))
    }

    /// The string to sign. `digest` is SHA-256 of the canonical request, in hex.
    pub fn string_to_sign(&self, digest: &str) -> String {
        format!("{ALGORITHM}\n{}\n{}\n{digest}", self.date_time, self.steps().join("/"))
    }

    /// The value of the header field `authorization`.
    pub fn authorization(&self, access_key_id: &str, signed_headers: &str, signature: &str) -> String {
        format!(
            "{ALGORITHM} Credential={}, SignedHeaders={signed_headers}, Signature={signature}",
            self.credential(access_key_id)
        )
    }
}

/// A request with its signature in the query.
#[derive(Clone, Debug)]
pub struct Presigned<'a> {
    /// Method.
    pub method: &'a str,
    /// Query parameters except those of the signature, not escaped.
    pub query: &'a [(&'a str, &'a str)],
    /// Header fields to sign, sorted by name.
    pub headers: &'a [Header<'a>],
    /// SHA-256 of the body, in lower-case hex.
    pub payload_digest: &'a str,
    /// Seconds for which the signature is valid.
    pub expires: u32,
    /// Id of the key that signs.
    pub access_key_id: &'a str,
    /// Whether the key has a session token.
    pub session: bool,
}

/// The query and the canonical request, for the path `/`. The caller appends
/// `&X-Amz-Signature=…` to the query.
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
    // AWS requires byte order. The sort is stable, so repeated names keep their order.
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

/// A request with its signature in a header field.
#[derive(Clone, Debug)]
pub struct Signed<'a> {
    /// Method.
    pub method: &'a str,
    /// The query in canonical form.
    pub query: &'a str,
    /// Header fields to sign, except `x-amz-date` and `x-amz-security-token`.
    pub headers: &'a [Header<'a>],
    /// SHA-256 of the body, in lower-case hex.
    pub payload_digest: &'a str,
    /// Whether the key has a session token.
    pub session: bool,
}

/// The canonical request and the names of the signed header fields, for the path `/`.
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

/// Joins adjacent texts.
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
