//! Errors of AWS, whose HTTP status says too little.
//!
//! In: an answer that is no success, in JSON or XML. Out: its error. Never: a
//! throttled call that counts as refused.
//!
//! Source: the error lists of botocore and of the STS API reference.

use serde_json::Value;

use crate::{Answer, Class, Error, classify};

/// What an answer says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Code such as `AccessDenied`, without a namespace.
    pub code: String,
    /// Sentence.
    pub message: String,
    /// Id of the request.
    pub request_id: Option<String>,
}

/// Reads `{"Error": {"Code", "Message"}}`, `{"__type", "message"}` and the XML form.
pub fn said(body: &str) -> Said {
    let json: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |paths: &[&str]| {
        let found = paths.iter().find_map(|path| json.pointer(path)?.as_str());
        found.map(str::to_owned)
    };
    let code = text(&["/Error/Code", "/__type", "/code", "/Code"]).or_else(|| element(body, "Code"));
    let message = text(&["/Error/Message", "/message", "/Message"]).or_else(|| element(body, "Message"));
    let code = code.unwrap_or_default();
    let code = code.rsplit('#').next().unwrap_or_default();
    Said {
        code: code.split(':').next().unwrap_or_default().to_owned(),
        message: message.unwrap_or_default(),
        request_id: text(&["/RequestId", "/ResponseMetadata/RequestId"]).or_else(|| element(body, "RequestId")),
    }
}

/// Text of the first element `name`; enough for error answers, which nest no two.
fn element(xml: &str, name: &str) -> Option<String> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    let (text, _) = rest.split_once(&format!("</{name}>"))?;
    Some(text.trim().to_owned())
}

/// The error of an answer that is no success.
pub fn refusal(answer: &Answer) -> Error {
    let said = said(&answer.text());
    let class = class(answer.status, &said.code);
    let code = match said.code.as_str() {
        "" => format!("http.{}", answer.status),
        code => format!("aws.{code}"),
    };
    let message = match (said.code.as_str(), said.message.as_str()) {
        ("", "") => "AWS does not say why".to_owned(),
        (code, message) => format!("{code}: {message}"),
    };
    answer
        .error(class, &code, &message)
        .with_correlation(answer.request_id().or(said.request_id))
}

/// The class of the error `code` in an answer with `status`.
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

/// Whether `code` says that the token itself has ended.
pub fn is_expired_token(code: &str) -> bool {
    matches!(code.strip_suffix("Exception").unwrap_or(code), "ExpiredToken")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_of_every_form() {
        for body in [
            r#"{"Error":{"Code":"ExpiredTokenException","Message":"m","Type":"Sender"},"RequestId":"r"}"#,
            r#"{"__type":"com.amazon.sts#ExpiredTokenException","message":"m","RequestId":"r"}"#,
            "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\n<Message>m</Message></Error>\
             <RequestId>r</RequestId></ErrorResponse>",
        ] {
            let expected = Said {
                code: "ExpiredTokenException".to_owned(),
                message: "m".to_owned(),
                request_id: Some("r".to_owned()),
            };
            assert_eq!(said(body), expected, "{body}");
        }
        assert_eq!(said("gateway timeout"), Said::default());
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
