//! Each kind of credential is recognized, and each near miss is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::request::Parts;
use secrecy::ExposeSecret as _;

use super::{CiTokenSupport, Error, MalformedAgentCredential, PresentedCredential, read, strip_query};
use crate::access::{AccessKey, AccessQuery};

/// A request with this target and these fields.
fn head(target: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().uri(target);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

/// The credential as text.
fn describe(presented: PresentedCredential) -> String {
    let AccessQuery { agent, key } = match presented {
        PresentedCredential::Query(query) => query,
        PresentedCredential::IdToken(token) => return format!("id-token {}", token.expose_secret()),
    };
    match key {
        AccessKey::PersonalAccessToken(token) => format!("pat {agent} {}", token.expose_secret()),
        AccessKey::CiJobToken(token) => format!("ci {agent} {}", token.expose_secret()),
        AccessKey::SessionCookie { cookie, csrf_token } => {
            format!(
                "cookie {agent} {} {}",
                cookie.expose_secret(),
                csrf_token.expose_secret()
            )
        }
        AccessKey::OidcIdToken(_) => panic!("an ID token is not verified here"),
    }
}

fn check(target: &str, fields: &[(&str, &str)], expected: Result<&str, Error>) {
    let read = read(&head(target, fields), CiTokenSupport::Unknown).map(describe);
    assert_eq!(read, expected.map(str::to_owned), "{target} {fields:?}");
}

fn missing(part: &'static str) -> Error {
    MalformedAgentCredential::Missing(part).into()
}

fn repeated(name: &'static str, observed: usize) -> Error {
    MalformedAgentCredential::Repeated { name, observed }.into()
}

fn undecodable(part: &'static str) -> Error {
    MalformedAgentCredential::Encoding(part).into()
}

#[test]
fn bearer_tokens_are_recognized_by_their_format() {
    let cases: &[(&str, Result<&str, Error>)] = &[
        ("Bearer pat:9999:glpat-alice", Ok("pat 9999 glpat-alice")),
        ("bEaReR pat:9999:glpat-alice", Ok("pat 9999 glpat-alice")),
        ("Bearer pat:7:with:colons:", Ok("pat 7 with:colons:")),
        ("Bearer pat:7:with.two.dots", Ok("pat 7 with.two.dots")),
        ("Bearer pat:9223372036854775807:t", Ok("pat 9223372036854775807 t")),
        ("Bearer aGVhZA.Y2xhaW1z.c2ln-_", Ok("id-token aGVhZA.Y2xhaW1z.c2ln-_")),
        // Refused later, like tokens with a wrong signature.
        ("Bearer aGVhZA.Y2xhaW1z.", Ok("id-token aGVhZA.Y2xhaW1z.")),
        ("", Err(MalformedAgentCredential::Authorization.into())),
        ("Bearer", Err(MalformedAgentCredential::Authorization.into())),
        (
            "Bearer  pat:9999:t",
            Err(MalformedAgentCredential::Authorization.into()),
        ),
        (
            "Bearer\tpat:9999:t",
            Err(MalformedAgentCredential::Authorization.into()),
        ),
        (
            "Bearer pat:9999:two words",
            Err(MalformedAgentCredential::Authorization.into()),
        ),
        ("Bearer:pat:9999:t", Err(MalformedAgentCredential::Authorization.into())),
        ("pat:9999:t", Err(Error::UnknownKind)),
        ("Basic YWxpY2U6eA==", Err(Error::UnknownKind)),
        ("Token asdf", Err(Error::UnknownKind)),
        ("Bearer opaque", Err(Error::UnknownKind)),
        ("Bearer PAT:9999:t", Err(Error::UnknownKind)),
        ("Bearer ci:9999:t", Err(Error::UnknownKind)),
        ("Bearer plrl:9999:t", Err(Error::UnknownKind)),
        ("Bearer :9999:t", Err(Error::UnknownKind)),
        ("Bearer pat:9999", Err(missing("the token"))),
        ("Bearer pat:9999:", Err(missing("the token"))),
        ("Bearer pat:", Err(missing("the token"))),
        ("Bearer aaa.bbb.ccc.ddd.eee", Err(MalformedAgentCredential::Jwt.into())),
        ("Bearer aaa.bbb", Err(MalformedAgentCredential::Jwt.into())),
        ("Bearer .bbb.ccc", Err(MalformedAgentCredential::Jwt.into())),
        ("Bearer aaa..ccc", Err(MalformedAgentCredential::Jwt.into())),
        ("Bearer aaa.bbb.cc=", Err(MalformedAgentCredential::Jwt.into())),
        ("Bearer aaa.b+b.ccc", Err(MalformedAgentCredential::Jwt.into())),
    ];
    for (field, expected) in cases {
        check("/version", &[("authorization", field)], expected.clone());
    }
}

#[test]
fn agent_ids_are_canonical_numbers() {
    for agent in [
        "",
        "0",
        "009999",
        "+7",
        "-7",
        "7.0",
        "0x7",
        "seven",
        "٧",
        "9223372036854775808",
        " 7",
    ] {
        let field = format!("Bearer pat:{agent}:t");
        let read = read(
            &{
                let mut head = head("/version", &[]);
                let value = http::HeaderValue::from_bytes(field.as_bytes()).unwrap();
                head.headers.insert("authorization", value);
                head
            },
            CiTokenSupport::Unknown,
        );
        assert!(matches!(read, Err(Error::Malformed(_))), "{agent}: {read:?}");
        if agent.is_ascii() {
            let fields = [
                ("cookie", "_gitlab_kas=s"),
                ("gitlab-agent-id", agent),
                ("x-csrf-token", "c"),
            ];
            let expected = if agent.is_empty() {
                missing("the agent id")
            } else {
                MalformedAgentCredential::Agent.into()
            };
            check("/version", &fields, Err(expected));
        }
    }
}

#[test]
fn ci_tokens_are_accepted_only_if_supported() {
    let head = head("/version", &[("authorization", "Bearer ci:5:job:token")]);
    assert_eq!(
        describe(read(&head, CiTokenSupport::Accepted).unwrap()),
        "ci 5 job:token"
    );
    assert_eq!(read(&head, CiTokenSupport::Unknown).unwrap_err(), Error::UnknownKind);
}

#[test]
fn tokens_are_bounded() {
    let bounds = [
        ("pat:1:", super::MAX_KEY_BYTES),
        // Header and claims before the signature.
        ("aaa.bbb.", super::MAX_ID_TOKEN_BYTES - 8),
    ];
    for (start, allowed) in bounds {
        let field = |bytes: usize| format!("Bearer {start}{}", "x".repeat(bytes));
        let read_of = |bytes| read(&head("/", &[("authorization", &field(bytes))]), CiTokenSupport::Unknown);
        assert!(read_of(allowed).is_ok(), "{start}");
        let refused = read_of(allowed + 1).unwrap_err();
        assert!(
            matches!(refused, Error::Malformed(MalformedAgentCredential::TooLong { .. })),
            "{refused}"
        );
        assert!(!refused.to_string().contains("xx"));
    }
}

#[test]
fn the_cookie_needs_agent_and_csrf_token() {
    let cookie = ("cookie", "_gitlab_kas=sess-bob");
    let agent = ("gitlab-agent-id", "9999");
    let csrf = ("x-csrf-token", "csrf-bob");
    let good = Ok("cookie 9999 sess-bob csrf-bob");
    check("/version", &[cookie, agent, csrf], good.clone());
    let query = "/version?gitlab-agent-id=9999&gitlab-csrf-token=csrf-bob&limit=5";
    check(query, &[cookie], good.clone());
    check(
        query,
        &[cookie, ("gitlab-agent-id", "8")],
        Ok("cookie 8 sess-bob csrf-bob"),
    );
    check(
        query,
        &[cookie, ("x-csrf-token", "mine")],
        Ok("cookie 9999 sess-bob mine"),
    );
    check(
        "/?gitlab%2Dagent-id=9999&gitlab-csrf-token=a%2Bb+c",
        &[cookie],
        Ok("cookie 9999 sess-bob a+b c"),
    );
    check("/", &[cookie], Err(missing("the agent id")));
    check("/", &[cookie, csrf], Err(missing("the agent id")));
    check("/", &[cookie, agent], Err(missing("the CSRF token")));
    check(
        "/",
        &[cookie, agent, ("x-csrf-token", "")],
        Err(missing("the CSRF token")),
    );
    let cased = "/version?Gitlab-Agent-Id=9999&Gitlab-Csrf-Token=csrf-bob";
    check(cased, &[cookie], Err(missing("the agent id")));
    check(
        "/",
        &[cookie, agent, ("gitlab-agent-id", "8"), csrf],
        Err(repeated("Gitlab-Agent-Id", 2)),
    );
    check(
        "/",
        &[cookie, agent, csrf, ("x-csrf-token", "y")],
        Err(repeated("X-Csrf-Token", 2)),
    );
    let twice = "/?gitlab-agent-id=9999&gitlab%2dagent%2did=8&gitlab-csrf-token=c";
    check(twice, &[cookie], Err(repeated("gitlab-agent-id", 2)));
    let broken = "/?gitlab-agent-id=9999&gitlab-csrf-token=%zz";
    check(broken, &[cookie], Err(undecodable("gitlab-csrf-token")));
}

#[test]
fn the_cookie_must_not_be_repeated_and_is_decoded_once() {
    let other_fields = [("gitlab-agent-id", "9999"), ("x-csrf-token", "c")];
    let value = "the value of cookie `_gitlab_kas`";
    let cases: &[(&[&str], Result<&str, Error>)] = &[
        (&["_gitlab_kas=a%2Bb+c%253D"], Ok("cookie 9999 a+b c%3D c")),
        (&["_gitlab_session=x; _gitlab_kas=s;theme=dark"], Ok("cookie 9999 s c")),
        (&["theme=dark", "_gitlab_kas=s"], Ok("cookie 9999 s c")),
        (&["_gitlab_kas=s=="], Ok("cookie 9999 s== c")),
        (&["_gitlab_kas="], Err(missing(value))),
        (&["_gitlab_kas"], Err(missing(value))),
        (&["_gitlab_kas=%"], Err(undecodable(value))),
        (&["_gitlab_kas=%ff"], Err(undecodable(value))),
        (&["_gitlab_kas=a; _gitlab_kas=a"], Err(repeated("_gitlab_kas", 2))),
        (&["_gitlab_kas=a", "_gitlab_kas=b"], Err(repeated("_gitlab_kas", 2))),
        // Other cookies are not credentials.
        (&["_gitlab_kas2=a"], Err(Error::NoCredential)),
        (&["_GITLAB_KAS=a"], Err(Error::NoCredential)),
        (&["x_gitlab_kas=a"], Err(Error::NoCredential)),
        (&["argocd.token=a"], Err(Error::NoCredential)),
    ];
    for (cookies, expected) in cases {
        let mut fields = other_fields.to_vec();
        fields.extend(cookies.iter().map(|cookie| ("cookie", *cookie)));
        check("/version", &fields, expected.clone());
    }
}

#[test]
fn more_than_one_credential_is_refused() {
    check("/version", &[], Err(Error::NoCredential));
    // The agent and the CSRF token are no credential without the cookie.
    check(
        "/version?gitlab-agent-id=1",
        &[("x-csrf-token", "c")],
        Err(Error::NoCredential),
    );
    let several: Error = MalformedAgentCredential::Several.into();
    let pat = ("authorization", "Bearer pat:1:t");
    let cookie = ("cookie", "_gitlab_kas=s");
    let protocol = offer("pat:1:t", ", v5.channel.k8s.io");
    let socket = [("upgrade", "websocket"), ("sec-websocket-protocol", protocol.as_str())];
    check("/", &[pat, cookie], Err(several.clone()));
    check("/", &[("authorization", "Basic eA=="), cookie], Err(several.clone()));
    check("/", &[pat, ("cookie", "_gitlab_kas=")], Err(several.clone()));
    check("/", &[socket[0], socket[1], pat], Err(several.clone()));
    check("/", &[socket[0], socket[1], cookie], Err(several));
    check("/", &[pat, pat], Err(repeated("Authorization", 2)));
    check("/", &[pat, ("cookie", "argocd.token=x")], Ok("pat 1 t"));
}

/// The subprotocol that carries a token.
fn offer(token: &str, rest: &str) -> String {
    format!(
        "base64url.bearer.authorization.k8s.io.{}{rest}",
        URL_SAFE_NO_PAD.encode(token)
    )
}

#[test]
fn a_websocket_may_carry_its_token_as_a_subprotocol() {
    let token = "the token in `Sec-WebSocket-Protocol`";
    let prefix = "base64url.bearer.authorization.k8s.io";
    let only_token: Error = MalformedAgentCredential::OnlySubprotocol.into();
    let cases: &[(&[String], Result<&str, Error>)] = &[
        (&[offer("pat:9:t", ", v5.channel.k8s.io")], Ok("pat 9 t")),
        (&["v5.channel.k8s.io".into(), offer("pat:9:t", "")], Ok("pat 9 t")),
        (&[offer("a.b.c", ",x")], Ok("id-token a.b.c")),
        (&["v5.channel.k8s.io".into()], Err(Error::NoCredential)),
        (&[offer("opaque", ",x")], Err(Error::UnknownKind)),
        (&[offer("pat:9:t", "")], Err(only_token.clone())),
        (&[offer("pat:9:t", ", ,")], Err(only_token)),
        (&[offer("", ",x")], Err(missing(token))),
        (&[offer("pat:9:t", "=,x")], Err(undecodable(token))),
        (&[format!("{prefix}.p+/t,x")], Err(undecodable(token))),
        (
            &[offer("pat:9:t", ",x"), offer("pat:9:t", "")],
            Err(repeated(prefix, 2)),
        ),
        (
            &[offer("pat:9: t", ",x")],
            Err(MalformedAgentCredential::Authorization.into()),
        ),
    ];
    for (lines, expected) in cases {
        let mut fields = vec![("upgrade", "WebSocket")];
        fields.extend(lines.iter().map(|line| ("sec-websocket-protocol", line.as_str())));
        check("/version", &fields, expected.clone());
        // Only a WebSocket request carries one.
        check("/version", &fields[1..], Err(Error::NoCredential));
    }
}

#[test]
fn tokens_are_removed_from_the_subprotocols() {
    let cases: &[(&[String], &[&str])] = &[
        (&[offer("pat:9:t", ", v5.channel.k8s.io")], &["v5.channel.k8s.io"]),
        (&["a, b".into(), offer("t", ""), "c".into()], &["a, b, c"]),
        (&[offer("t", "")], &[]),
        (&["a,b".into(), "c".into()], &["a,b", "c"]),
    ];
    for (lines, expected) in cases {
        let mut fields = http::HeaderMap::new();
        for line in *lines {
            fields.append("sec-websocket-protocol", line.parse().unwrap());
        }
        tollgate_core::subprotocol::strip(&mut fields);
        let left: Vec<_> = fields.get_all("sec-websocket-protocol").iter().collect();
        assert_eq!(left, *expected);
    }
}

#[test]
fn only_the_gateways_parameters_are_removed_from_the_query() {
    let cases = [
        ("gitlab-agent-id=9&gitlab-csrf-token=c&limit=5", Some("limit=5")),
        (
            "b=2&gitlab-csrf-token=c&a=%2f+%zz&&gitlab-agent-id",
            Some("b=2&a=%2f+%zz&"),
        ),
        ("gitlab%2Dagent%2did=9&x=1", Some("x=1")),
        ("%67itlab-csrf-token=secret&x", Some("x")),
        ("gitlab-agent-id=9", None),
        ("", Some("")),
        ("z=1&a=2", Some("z=1&a=2")),
        ("Gitlab-Agent-Id=9", Some("Gitlab-Agent-Id=9")),
        (
            "gitlab-agent-id2=9&xgitlab-agent-id=1",
            Some("gitlab-agent-id2=9&xgitlab-agent-id=1"),
        ),
        ("gitlab%252Dagent-id=9", Some("gitlab%252Dagent-id=9")),
        ("q=gitlab-agent-id=9", Some("q=gitlab-agent-id=9")),
    ];
    for (query, expected) in cases {
        assert_eq!(strip_query(Some(query)).as_deref(), expected, "{query}");
    }
    assert_eq!(strip_query(None), None);
}

#[test]
fn debug_output_contains_no_secret() {
    let pat = head("/", &[("authorization", "Bearer pat:1:hush")]);
    let cookie = head(
        "/?gitlab-agent-id=1&gitlab-csrf-token=hush",
        &[("cookie", "_gitlab_kas=hush")],
    );
    for head in [pat, cookie] {
        let shown = format!("{:?}", read(&head, CiTokenSupport::Unknown).unwrap());
        assert!(
            shown.contains("agent: AgentId(1)") && !shown.contains("hush"),
            "{shown}"
        );
    }
}
