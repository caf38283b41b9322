//! Maps HTTP statuses to status codes of gRPC, which clients of Argo CD also read from REST
//! responses.

use http::StatusCode;

/// Source: <https://github.com/grpc/grpc/blob/master/doc/statuscodes.md>
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the code of its name")]
pub enum Code {
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl Code {
    /// Its number on the wire.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The code that stands for an HTTP status.
    pub fn from_http_status(status: StatusCode) -> Self {
        match status.as_u16() {
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            405 | 501 => Self::Unimplemented,
            409 => Self::Aborted,
            412 => Self::FailedPrecondition,
            413 | 429 => Self::ResourceExhausted,
            499 => Self::Cancelled,
            408 | 504 => Self::DeadlineExceeded,
            502 | 503 => Self::Unavailable,
            400..=498 => Self::InvalidArgument,
            _ => Self::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::Code;

    #[test]
    fn http_statuses_map_to_grpc_codes() {
        for (status, code) in [
            (400, 3),
            (401, 16),
            (403, 7),
            (404, 5),
            (409, 10),
            (413, 8),
            (415, 3),
            (422, 3),
            (429, 8),
            (500, 13),
            (502, 14),
            (503, 14),
            (504, 4),
        ] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(Code::from_http_status(status).number(), code, "{status}");
        }
    }
}
