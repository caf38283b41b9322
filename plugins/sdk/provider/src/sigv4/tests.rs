//! AWS's test vectors, with hmac and sha2 in place of the host's cryptography.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};

use super::{Header, Piece, Presigned, Scope, Signed, presigned, signed};
use crate::encoding::{hex, percent};

const ACCESS_KEY_ID: &str = "AKIDEXAMPLE";
const SECRET_ACCESS_KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const SUITE_TOKEN: &str = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The text that the host would make of the pieces.
fn render(pieces: &[Piece], token: &str) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::SessionToken => token.to_owned(),
        Piece::SessionTokenEscaped => percent(token),
    };
    pieces.iter().map(text).collect()
}

fn hmac(key: &[u8], data: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(data);
    mac.finalize().into_bytes().to_vec()
}

fn signing_key(scope: &Scope) -> Vec<u8> {
    let first = format!("AWS4{SECRET_ACCESS_KEY}").into_bytes();
    scope
        .steps()
        .iter()
        .fold(first, |key, step| hmac(&key, step.as_bytes()))
}

fn sign(scope: &Scope, canonical: &str) -> String {
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    hex(&hmac(&signing_key(scope), scope.string_to_sign(&digest).as_bytes()))
}

fn suite() -> Scope {
    Scope {
        date_time: "20150830T123600Z".to_owned(),
        region: "us-east-1".to_owned(),
        service: "service".to_owned(),
    }
}

fn example() -> [Header<'static>; 1] {
    [("host", "example.amazonaws.com".to_owned())]
}

#[test]
fn signatures_in_the_query_match_the_suite() {
    for (method, query, token, expected) in [
        (
            "GET",
            &[][..],
            "",
            "e93c787ed7f371d5c6b165c1b38ede9550f4dce4144713e844b25b7192d3865d",
        ),
        (
            "GET",
            &[],
            SUITE_TOKEN,
            "7ff2b50b376cb4d151970630573d6291dc128cc5c2a12ffb237f73cc53f67b6c",
        ),
        (
            "GET",
            &[("\u{1234}", "bar")],
            "",
            "0bdd809b1519ac4f0c1dc3540e2cc46bd0c7f778eda408b2ebf3b913d21ff600",
        ),
        (
            "POST",
            &[],
            "",
            "2ce6e6d2e0cf2f9d1b55fafec88cd20574c31dc2e7631979f71ba2310083e95b",
        ),
    ] {
        let request = Presigned {
            method,
            query,
            headers: &example(),
            payload_digest: EMPTY,
            expires: 3600,
            access_key_id: ACCESS_KEY_ID,
            session: !token.is_empty(),
        };
        let (_, canonical) = presigned(&request, &suite());
        assert_eq!(sign(&suite(), &render(&canonical, token)), expected);
    }
}

#[test]
fn signatures_in_header_fields_match_the_suite() {
    for (method, query, token, expected) in [
        (
            "GET",
            "",
            "",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "GET",
            "",
            SUITE_TOKEN,
            "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        ),
        (
            "GET",
            "%E1%88%B4=bar",
            "",
            "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
        ),
        (
            "POST",
            "",
            "",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
    ] {
        let request = Signed {
            method,
            query,
            headers: &example(),
            payload_digest: EMPTY,
            session: !token.is_empty(),
        };
        let (canonical, _) = signed(&request, &suite());
        assert_eq!(sign(&suite(), &render(&canonical, token)), expected);
    }
}

#[test]
fn all_header_fields_are_signed_in_order() {
    let digest = hex(&Sha256::digest(b"Param1=value1"));
    let headers = [
        ("content-type", "application/x-www-form-urlencoded".to_owned()),
        ("host", "example.amazonaws.com".to_owned()),
        ("x-amz-content-sha256", digest.clone()),
        ("content-length", "13".to_owned()),
    ];
    let request = Signed {
        method: "POST",
        query: "",
        headers: &headers,
        payload_digest: &digest,
        session: false,
    };
    let (canonical, names) = signed(&request, &suite());
    assert_eq!(
        names,
        "content-length;content-type;host;x-amz-content-sha256;x-amz-date"
    );
    let signature = sign(&suite(), &render(&canonical, ""));
    assert_eq!(
        signature,
        "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"
    );
    let authorization = suite().authorization(ACCESS_KEY_ID, &names, &signature);
    assert!(authorization.starts_with(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=content-length;"
    ));
}

#[test]
fn the_presigned_call_for_eks_has_its_known_signature() {
    let scope = Scope::new(1_767_323_045_000, "us-west-2", "sts").unwrap();
    assert_eq!(scope.date_time, "20260102T030405Z");
    let request = Presigned {
        method: "GET",
        query: &[("Action", "GetCallerIdentity"), ("Version", "2011-06-15")],
        headers: &[
            ("host", "sts.us-west-2.amazonaws.com".to_owned()),
            ("x-k8s-aws-id", "prod-eks".to_owned()),
        ],
        payload_digest: EMPTY,
        expires: 60,
        access_key_id: ACCESS_KEY_ID,
        session: false,
    };
    let (_, canonical) = presigned(&request, &scope);
    let canonical = render(&canonical, "");
    let digest = hex(&Sha256::digest(canonical.as_bytes()));
    assert_eq!(
        digest,
        "afb943a2bc8c8f6f7e1b22e39c37b74001eae5a1908937ca98cfcaf39e255df5"
    );
    assert_eq!(
        hex(&signing_key(&scope)),
        "b01cfc5a8638909a112436997f42dad63e065131ab0949a326867710c46fbf26"
    );
    assert_eq!(
        sign(&scope, &canonical),
        "76de9e4274a717955ee67363753cc64687faae05c41e36a7ead91103102ad96e"
    );
}
