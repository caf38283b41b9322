//! The requests that the load generator repeats, each with its response.

/// A request and its response.
#[derive(Debug)]
pub(super) struct Exchange {
    /// Path and query.
    pub(super) path: &'static str,
    /// Fields of the request, apart from its session.
    pub(super) fields: &'static [(&'static str, &'static str)],
    /// Content of the response.
    pub(super) content: String,
}

impl Exchange {
    /// A call of an extension, about an application: 1,024 bytes.
    pub(super) fn extension() -> Self {
        Self {
            path: "/extensions/metrics/api/series?range=1h&step=15s",
            fields: &[
                ("Argocd-Application-Name", "argocd:cart"),
                ("Argocd-Project-Name", "proj5"),
            ],
            content: json("series", 1 << 10),
        }
    }

    /// A list of applications, as argocd-server answers it: 50 KiB.
    pub(super) fn applications() -> Self {
        Self {
            path: "/api/v1/applications",
            fields: &[],
            content: json("items", 50 << 10),
        }
    }
}

/// An object of `bytes` bytes with one field.
pub(super) fn json(field: &str, bytes: usize) -> String {
    let (before, after) = (format!(r#"{{"{field}":""#), r#""}"#);
    let filling = "x".repeat(bytes.saturating_sub(before.len() + after.len()));
    before + &filling + after
}
