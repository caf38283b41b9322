//! Classifies errors of AWS by their code, because the HTTP status alone does not tell throttling
//! from refusal. Reads error answers in JSON and XML.
//!
//! Source: the error lists of botocore and of the STS API reference.

use serde_json::Value;

use crate::{Answer, Class, Error, classify};

/// What an error answer of AWS contains. Texts are empty where the answer has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorDetails {
    /// Code such as `AccessDenied`, without a namespace.
    pub code: String,
    /// Message for people.
    pub message: String,
    /// Id that AWS gave the request.
    pub request_id: Option<String>,
}

/// Reads `{"Error": {"Code", "Message"}}`, `{"__type", "message"}` and the XML form.
pub fn error_details(body: &str) -> ErrorDetails {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |paths: &[&str]| {
        let found = paths.iter().find_map(|path| json.pointer(path)?.as_str());
        found.map(str::to_owned)
    };
    let code = text(&["/Error/Code", "/__type", "/code", "/Code"]).or_else(|| element(body, "Code"));
    let message = text(&["/Error/Message", "/message", "/Message"]).or_else(|| element(body, "Message"));
    let code = code.unwrap_or_default();
    let code = code.rsplit('#').next().unwrap_or_default();
    ErrorDetails {
        code: code.split(':').next().unwrap_or_default().to_owned(),
        message: message.unwrap_or_default(),
        request_id: text(&["/RequestId", "/ResponseMetadata/RequestId"]).or_else(|| element(body, "RequestId")),
    }
}

/// The text of the first element `name`. In error answers, elements of one name are not nested.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim().to_owned())
}

/// The error for an answer whose status is not 2xx.
pub fn refusal(answer: &Answer) -> Error {
    let details = error_details(&answer.text());
    let class = class(answer.status, &details.code);
    let code = match details.code.as_str() {
        "" => format!("http.{}", answer.status),
        code => format!("aws.{code}"),
    };
    let message = match (details.code.as_str(), details.message.as_str()) {
        ("", "") => "AWS does not say why".to_owned(),
        (code, message) => format!("{code}: {message}"),
    };
    answer
        .error(class, &code, &message)
        .with_correlation(answer.request_id().or(details.request_id))
}

/// The class of an answer with `status` and the error `code`.
pub fn class(status: u16, code: &str) -> Class {
    match code.strip_suffix("Exception").unwrap_or(code) {
        "Throttling"
        | "Throttled"
        | "RequestThrottled"
        | "TooManyRequests"
        | "RequestLimitExceeded"
        | "BandwidthLimitExceeded"
        | "LimitExceeded"
        | "SlowDown"
        | "PriorRequestNotComplete"
        | "TransactionInProgress"
        | "ProvisionedThroughputExceeded"
        | "EC2Throttled"
        | "RequestTimeout"
        | "InternalFailure"
        | "InternalError"
        | "InternalServerError"
        | "InternalServer"
        | "ServiceUnavailable"
        | "IDPCommunicationError" => Class::Retryable,
        "AccessDenied"
        | "ExpiredToken"
        | "InvalidIdentityToken"
        | "IDPRejectedClaim"
        | "InvalidClientTokenId"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClient"
        | "InvalidToken"
        | "AuthFailure"
        | "NotAuthorized"
        | "MissingAuthenticationToken"
        | "IncompleteSignature"
        | "RequestExpired"
        | "OptInRequired"
        | "UnauthorizedOperation"
        | "InvalidAccessKeyId" => Class::Denied,
        "RegionDisabled"
        | "MalformedPolicyDocument"
        | "PackedPolicyTooLarge"
        | "ValidationError"
        | "Validation"
        | "InvalidParameterValue"
        | "InvalidParameterCombination"
        | "InvalidQueryParameter"
        | "MissingParameter"
        | "InvalidAction"
        | "MissingAction"
        | "MalformedQueryString"
        | "NoSuchEntity"
        | "ResourceNotFound"
        | "InvalidParameter" => Class::Config,
        _ => classify::status(status),
    }
}

/// Whether `code` says that the token has expired.
pub fn is_expired_token(code: &str) -> bool {
    matches!(code.strip_suffix("Exception").unwrap_or(code), "ExpiredToken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_from_every_form() {
        for body in [
            r#"{"Error":{"Code":"ExpiredTokenException","Message":"m","Type":"Sender"},"RequestId":"r"}"#,
            r#"{"__type":"com.amazon.sts#ExpiredTokenException","message":"m","RequestId":"r"}"#,
            "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\n<Message>m</Message></Error>\
             <RequestId>r</RequestId></ErrorResponse>",
        ] {
            let expected = ErrorDetails {
                code: "ExpiredTokenException".to_owned(),
                message: "m".to_owned(),
                request_id: Some("r".to_owned()),
            };
            assert_eq!(error_details(body), expected, "{body}");
        }
        assert_eq!(error_details("gateway timeout"), ErrorDetails::default());
    }

    #[test]
    fn the_code_decides_at_any_status() {
        for (status, code, expected) in [
            (400, "IDPCommunicationError", Class::Retryable),
            (400, "IDPCommunicationErrorException", Class::Retryable),
            (400, "Throttling", Class::Retryable),
            (400, "ThrottlingException", Class::Retryable),
            (400, "RequestLimitExceeded", Class::Retryable),
            (403, "IDPRejectedClaim", Class::Denied),
            (400, "InvalidIdentityToken", Class::Denied),
            (400, "ExpiredTokenException", Class::Denied),
            (403, "AccessDenied", Class::Denied),
            (403, "RegionDisabledException", Class::Config),
            (400, "MalformedPolicyDocument", Class::Config),
            (400, "PackedPolicyTooLarge", Class::Config),
            (403, "NeverHeardOf", Class::Denied),
            (500, "", Class::Retryable),
            (400, "NeverHeardOf", Class::Config),
        ] {
            assert_eq!(class(status, code), expected, "{status} {code}");
        }
        assert!(is_expired_token("ExpiredTokenException") && is_expired_token("ExpiredToken"));
        assert!(!is_expired_token("InvalidIdentityToken"));
    }
}
