//! Property test of response headers: of the fields that an upstream sends, those that affect the
//! gateway's origin are removed, and all harmless ones pass.
//!
//! The test has separate lists for the two kinds and does not use those of the gateway.

use std::sync::Arc;

use crate::cross_site;
use test_support::api_server::{Answer, Api};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, Setup};

/// The seed of the random numbers. A failure names the number of the answer.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// How many answers each front gets.
const ANSWERS: u64 = 300;

/// Fields that affect more than the answer they are in. They never pass.
const HARMFUL: [(&str, &str); 34] = [
    ("Set-Cookie", "argocd.token=stolen; Path=/"),
    ("Set-Cookie", "argocd.token-1=stolen; Path=/extensions/echo"),
    ("Set-Cookie", "=argocd.token=stolen"),
    ("Set-Cookie", "_gitlab_kas=stolen; Path=/"),
    ("Set-Cookie", "_gitlab_kas=stolen; Path=/extensions/echo"),
    ("Set-Cookie", "echo=1"),
    ("Set-Cookie", "echo=1; Path=/"),
    ("Set-Cookie", "echo=1; Path=/extensions/other"),
    ("Set-Cookie", "echo=1; Path=/extensions/echo; Domain=example.com"),
    ("Set-Cookie", "theme=dark; Path=/extensions/echo"),
    ("Set-Cookie2", "a=b"),
    (
        "NEL",
        r#"{"report_to":"evil","max_age":31536000,"include_subdomains":true}"#,
    ),
    (
        "Report-To",
        r#"{"group":"evil","max_age":1,"endpoints":[{"url":"https://evil.example"}]}"#,
    ),
    ("Reporting-Endpoints", r#"default="https://evil.example""#),
    ("Alt-Svc", "h2=\"evil.example:443\"; ma=2592000"),
    (
        "Strict-Transport-Security",
        "max-age=63072000; includeSubDomains; preload",
    ),
    ("Clear-Site-Data", "\"*\""),
    ("Public-Key-Pins", "pin-sha256=\"x\"; max-age=1"),
    ("Public-Key-Pins-Report-Only", "pin-sha256=\"x\""),
    ("Expect-CT", "max-age=1, report-uri=\"https://evil.example\""),
    ("Accept-CH", "Sec-CH-UA-Model"),
    ("Critical-CH", "Sec-CH-UA-Model"),
    ("Service-Worker-Allowed", "/"),
    ("Origin-Agent-Cluster", "?1"),
    ("Set-Login", "logged-out"),
    ("Use-As-Dictionary", "match=\"/*\""),
    ("Shared-Storage-Write", "clear"),
    ("Secure-Session-Registration", "(ES256);path=\"/\""),
    ("Attribution-Reporting-Register-Source", "{}"),
    ("WWW-Authenticate", "Basic realm=\"argocd\""),
    ("Proxy-Authenticate", "Basic realm=\"argocd\""),
    ("Tollgate-Decision-Id", "forged"),
    ("X-Accel-Redirect", "/etc/passwd"),
    ("Keep-Alive", "timeout=9"),
];

/// Fields that pass from a backend, which the operator chose.
const OF_BACKENDS: [(&str, &str); 16] = [
    ("Content-Type", "text/html"),
    ("Cache-Control", "max-age=60"),
    ("ETag", "\"a\""),
    ("Last-Modified", "Tue, 15 Nov 1994 12:45:26 GMT"),
    ("Vary", "Accept"),
    ("Location", "/elsewhere"),
    ("Retry-After", "7"),
    ("Server", "backend"),
    ("X-Total-Count", "3"),
    ("X-Frame-Options", "DENY"),
    ("Content-Security-Policy", "default-src 'self'"),
    ("Access-Control-Expose-Headers", "X-Total-Count"),
    ("Link", "</x>; rel=next"),
    ("Set-Cookie", "echo=1; Path=/extensions/echo; HttpOnly"),
    ("Set-Cookie", "echo-theme=dark; Path=/api/v1/extensions/echo/"),
    ("Warning", "299 - \"old\""),
];

/// Fields that pass from a cluster, where any pod may answer.
const OF_CLUSTERS: [(&str, &str); 9] = [
    ("content-type", "text/html"),
    ("cache-control", "no-cache, private"),
    ("etag", "\"a\""),
    ("last-modified", "Tue, 15 Nov 1994 12:45:26 GMT"),
    ("retry-after", "7"),
    ("warning", "299 - \"v1 is deprecated\""),
    ("audit-id", "0b4c"),
    ("x-kubernetes-pf-flowschema-uid", "u"),
    ("x-kubernetes-pf-prioritylevel-uid", "u"),
];

/// Fields that do not pass from a cluster.
const NOT_OF_CLUSTERS: [(&str, &str); 8] = [
    ("server", "pod"),
    ("access-control-allow-origin", "*"),
    ("access-control-allow-credentials", "true"),
    ("refresh", "0; url=https://evil.example"),
    ("x-anything", "1"),
    ("gitlab-unauthorized", "true"),
    ("link", "</x>; rel=preload"),
    ("set-cookie", "echo=1; Path=/extensions/echo"),
];

/// Pseudo-random numbers, deterministic for each answer.
struct Numbers(u64);

impl Numbers {
    fn of(answer: u64) -> Self {
        Self(SEED ^ answer.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn below(&mut self, most: usize) -> usize {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % u64::try_from(most).unwrap()).unwrap()
    }
}

type Field = (&'static str, &'static str);

/// The fields of an answer, each with whether it is harmless.
fn fields(answer: u64, harmless: &[Field], harmful: &[Field]) -> Vec<(Field, bool)> {
    let mut numbers = Numbers::of(answer);
    let count = numbers.below(14);
    let mut fields: Vec<(Field, bool)> = Vec::new();
    for _ in 0..count {
        let is_harmless = numbers.below(2) == 0;
        let pool = if is_harmless { harmless } else { harmful };
        let field = pool[numbers.below(pool.len())];
        // No field occurs twice, so that the result can be compared.
        if !fields.iter().any(|(other, _)| *other == field) {
            fields.push((field, is_harmless));
        }
    }
    fields
}

/// The name in lowercase, in uppercase or as it is.
fn spelled(name: &str, numbers: &mut Numbers) -> String {
    match numbers.below(3) {
        0 => name.to_lowercase(),
        1 => name.to_uppercase(),
        _ => name.to_owned(),
    }
}

/// Sorts fields for comparison.
fn sorted(mut fields: Vec<(String, String)>) -> Vec<(String, String)> {
    fields.sort();
    fields
}

/// The fields that the client received, without those named in `own`.
fn came_out(head: &str, own: &[&str]) -> Vec<(String, String)> {
    let lines = head.trim_end().split("\r\n").skip(1);
    let fields = lines.filter_map(|line| line.split_once(':'));
    let fields = fields.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned()));
    sorted(fields.filter(|(name, _)| !own.contains(&name.as_str())).collect())
}

fn harmless(fields: &[(Field, bool)]) -> Vec<(String, String)> {
    let kept = fields.iter().filter(|(_, is_harmless)| *is_harmless);
    sorted(
        kept.map(|((name, value), _)| (name.to_lowercase(), (*value).to_owned()))
            .collect(),
    )
}

/// The number of the answer that a path asks for.
fn asked(target: &str) -> u64 {
    target.rsplit('-').next().unwrap().parse().unwrap_or(0)
}

#[tokio::test]
async fn an_extensions_backend_affects_nothing_but_its_own_answers() {
    println!("seed {SEED:#x}");
    let backend = Backend::start(|seen| {
        let answer = asked(seen.line().split(' ').nth(1).unwrap());
        let mut numbers = Numbers::of(!answer);
        let mut head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n".to_owned();
        for ((name, value), _) in fields(answer, &OF_BACKENDS, &HARMFUL) {
            head.push_str(&format!("{}: {value}\r\n", spelled(name, &mut numbers)));
        }
        Reply::Bytes((head + "\r\n").into_bytes())
    })
    .await;
    let world = Setup::with_backend(backend.address).start().await;
    let mut client = Client::connect(world.address()).await;
    for answer in 0..ANSWERS {
        let request = format!(
            "GET /api/v1/extensions/echo/x-{answer} HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n",
            token::session(SESSION_KEY, "alice")
        );
        let head = client.exchange(request.as_bytes()).await.head;
        let sent = fields(answer, &OF_BACKENDS, &HARMFUL);
        let own = ["content-length", "date", "tollgate-decision-id"];
        assert_eq!(came_out(&head, &own), harmless(&sent), "answer {answer}: {sent:?}");
        assert!(!head.contains("forged"), "answer {answer}: {head}");
    }
}

#[tokio::test]
async fn what_is_behind_a_cluster_affects_nothing_but_its_own_answers() {
    println!("seed {SEED:#x}");
    let harmful: Arc<Vec<Field>> = Arc::new([HARMFUL.as_slice(), &NOT_OF_CLUSTERS].concat());
    let known = Arc::clone(&harmful);
    let api = Api::start(move |seen| -> Answer {
        if matches!(seen.target.as_str(), "/api" | "/apis") {
            return cross_site::good(seen);
        }
        let fields = fields(asked(&seen.target), &OF_CLUSTERS, &known);
        let fields = fields.into_iter().map(|((name, value), _)| (name, value.to_owned()));
        (200, fields.collect(), String::new())
    })
    .await;
    let world = cross_site::world(&api).await;
    let own = [
        "content-length",
        "content-security-policy",
        "date",
        "tollgate-decision-id",
        "transfer-encoding",
        "via",
        "x-content-type-options",
    ];
    let mut client = Client::connect(world.address()).await;
    for front in ["/clusters/prod/k8s", "/applications/argocd/cart/k8s"] {
        for answer in 0..ANSWERS {
            let request = format!(
                "GET {front}/api/v1/namespaces/cart/pods/p-{answer} HTTP/1.1\r\nHost: gateway\r\n\
                 Authorization: Bearer {}\r\n\r\n",
                token::session(SESSION_KEY, "alice")
            );
            let seen = client.exchange(request.as_bytes()).await;
            assert_eq!(seen.status, 200, "{front} answer {answer}: {}", seen.head);
            let sent = fields(answer, &OF_CLUSTERS, &harmful);
            assert_eq!(
                came_out(&seen.head, &own),
                harmless(&sent),
                "{front} answer {answer}: {sent:?}"
            );
            assert_eq!(seen.values("content-security-policy"), ["sandbox"]);
            assert_eq!(seen.values("x-content-type-options"), ["nosniff"]);
            assert_eq!(seen.values("via"), ["1.1 tollgate"]);
            assert!(!seen.head.contains("forged"), "answer {answer}: {}", seen.head);
        }
    }
}
