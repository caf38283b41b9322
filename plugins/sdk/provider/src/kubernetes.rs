//! Reads the `Status` objects with which Kubernetes API servers report errors.
//!
//! Source: `metav1.Status` of k8s.io/apimachinery.

use core::time::Duration;

use serde_json::Value;

use crate::{Answer, Error, classify};

/// The error for an answer of an API server whose status is not 2xx.
pub fn refusal(answer: &Answer) -> Error {
    let json = answer.json_or_null();
    let text = |name: &str| json.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let code = match text("reason") {
        Some(reason) => format!("kubernetes.{reason}"),
        None => format!("http.{}", answer.status),
    };
    let message = text("message").unwrap_or("the API server does not say why");
    let wait = answer.retry_after().or_else(|| retry_after(&json));
    answer
        .error(classify::status(answer.status), &code, message)
        .with_retry_after(wait)
}

fn retry_after(status: &Value) -> Option<Duration> {
    let seconds = status.pointer("/details/retryAfterSeconds")?.as_u64()?;
    (seconds > 0).then(|| Duration::from_secs(seconds).min(classify::MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_says_how_long_to_wait() {
        for (seconds, expected) in [
            (json!(3), Some(3)),
            (json!(9999), Some(600)),
            (json!(0), None),
            (json!("3"), None),
        ] {
            let status = json!({"details": {"retryAfterSeconds": seconds}});
            assert_eq!(retry_after(&status), expected.map(Duration::from_secs), "{status}");
        }
        assert_eq!(retry_after(&json!(null)), None);
    }
}
