use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Error, ForwardedClient, read};
use crate::client::Transport;
use tollgate_config::TrustedProxies;

fn fields(lines: &[(&'static str, &str)]) -> HeaderMap {
    let line = |(name, value): &(&'static str, &str)| {
        (
            HeaderName::from_static(name),
            HeaderValue::from_bytes(value.as_bytes()).unwrap(),
        )
    };
    lines.iter().map(line).collect()
}

fn proxies() -> TrustedProxies {
    TrustedProxies::try_new(["10.0.0.0/8", "2001:db8:ffff::/48"]).unwrap()
}

fn client(lines: &[(&'static str, &str)]) -> Result<Option<String>, Error> {
    let client = read(&fields(lines), &proxies())?;
    Ok(client.address.map(|address| address.to_string()))
}

const F: &str = "forwarded";
const X: &str = "x-forwarded-for";

#[test]
fn the_client_is_the_last_address_that_is_no_proxys() {
    for (lines, expected) in [
        (vec![(X, "203.0.113.7")], "203.0.113.7"),
        (vec![(X, "198.51.100.1, 203.0.113.7")], "203.0.113.7"),
        (
            vec![(X, "198.51.100.1,203.0.113.7 ,10.0.0.3,  10.0.0.2")],
            "203.0.113.7",
        ),
        // Several lines are one list, in their order.
        (
            vec![(X, "198.51.100.1"), (X, "203.0.113.7"), (X, "10.0.0.2")],
            "203.0.113.7",
        ),
        // A client that claims to be a proxy, and one that claims nothing readable.
        (vec![(X, "10.0.0.9, 203.0.113.7, 10.0.0.2")], "203.0.113.7"),
        (vec![(X, "<script>, unknown, ,_x, 203.0.113.7")], "203.0.113.7"),
        (vec![(X, "203.0.113.7:4711")], "203.0.113.7"),
        (vec![(X, "2001:db8::7")], "2001:db8::7"),
        (vec![(X, "[2001:db8::7]")], "2001:db8::7"),
        (vec![(X, "[2001:db8::7]:4711, 2001:db8:ffff::1")], "2001:db8::7"),
        (vec![(X, "::ffff:203.0.113.7, ::ffff:10.0.0.1")], "203.0.113.7"),
        // Only proxies: the first of them made the request.
        (vec![(X, "10.0.0.4, 10.0.0.3")], "10.0.0.4"),
        (vec![(F, "for=203.0.113.7")], "203.0.113.7"),
        (
            vec![(F, "for=198.51.100.1, for=203.0.113.7;by=10.0.0.1 , For=\"10.0.0.2:80\"")],
            "203.0.113.7",
        ),
        (
            vec![(F, "for=198.51.100.1"), (F, "proto=http;FOR=203.0.113.7")],
            "203.0.113.7",
        ),
        (
            vec![(
                F,
                "for=unknown, for=_hidden;ext=\"a, b; c\", for=\"[2001:db8::7]:_port\"",
            )],
            "2001:db8::7",
        ),
        (vec![(F, "for=10.0.0.4; proto=https, for=10.0.0.3")], "10.0.0.4"),
        // Both, if they agree on the client.
        (
            vec![(F, "for=203.0.113.7"), (X, "198.51.100.1, 203.0.113.7:80")],
            "203.0.113.7",
        ),
    ] {
        assert_eq!(client(&lines), Ok(Some(expected.to_owned())), "{lines:?}");
    }
    assert_eq!(client(&[]), Ok(None));
    assert_eq!(client(&[("x-real-ip", "203.0.113.7")]), Ok(None));
}

#[test]
fn a_client_that_is_not_named_for_sure_is_refused() {
    let chain = vec!["10.0.0.1"; 33].join(",");
    let elements = vec!["for=10.0.0.1"; 33].join(",");
    let (long_chain, long_elements) = ([(X, &*chain)], [(F, &*elements)]);
    let refused: Vec<(&[(&'static str, &str)], Error)> = vec![
        (&[(X, "")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7,")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7, client")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.07")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7:")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7:+1")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7:65536")], Error::NotAnAddress("X-Forwarded-For")),
        (
            &[(X, "203.0.113.7 203.0.113.8")],
            Error::NotAnAddress("X-Forwarded-For"),
        ),
        (&[(X, "fe80::1%eth0")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "[203.0.113.7]")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "[2001:db8::7]x")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "\"203.0.113.7\"")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "caf\u{e9}")], Error::NotAnAddress("X-Forwarded-For")),
        (&[(X, "203.0.113.7, unknown")], Error::Hidden("X-Forwarded-For")),
        (
            &[(X, "203.0.113.7, _hidden, 10.0.0.1")],
            Error::Hidden("X-Forwarded-For"),
        ),
        (&long_chain, Error::TooManyHops("X-Forwarded-For")),
        (&[(F, "")], Error::Syntax),
        (&[(F, "for")], Error::Syntax),
        (&[(F, "for=")], Error::Syntax),
        (&[(F, "for =203.0.113.7")], Error::Syntax),
        (&[(F, "for=203.0.113.7,")], Error::Syntax),
        (&[(F, ",for=203.0.113.7")], Error::Syntax),
        (&[(F, "for=203.0.113.7;")], Error::Syntax),
        (&[(F, "for=203.0.113.7 for=203.0.113.8")], Error::Syntax),
        (&[(F, "for=203.0.113.7;for=203.0.113.8")], Error::Syntax),
        (&[(F, "for=203.0.113.7;proto=http;PROTO=https")], Error::Syntax),
        // Not a token, so it has to be quoted.
        (&[(F, "for=203.0.113.7:80")], Error::Syntax),
        (&[(F, "for=[2001:db8::7]")], Error::Syntax),
        // A client that opens a quote cannot swallow what the proxy adds.
        (&[(F, "for=\"203.0.113.8, for=203.0.113.7")], Error::Syntax),
        (&[(F, "for=\"203.0.113.8"), (F, "for=203.0.113.7")], Error::Syntax),
        (&[(F, "for=\"203.0.113.8\\\", for=203.0.113.7;x=\"")], Error::Syntax),
        (&[(F, "for=caf\u{e9}")], Error::Syntax),
        (
            &[(F, "for=203.0.113.7, for=\"2001:db8::7\"")],
            Error::NotAnAddress("Forwarded"),
        ),
        (&[(F, "for=203.0.113.7, proto=https")], Error::Hidden("Forwarded")),
        (&[(F, "for=203.0.113.7, for=unknown")], Error::Hidden("Forwarded")),
        (
            &[(F, "for=203.0.113.7, for=\"_hidden:_p\", for=10.0.0.1")],
            Error::Hidden("Forwarded"),
        ),
        (&long_elements, Error::TooManyHops("Forwarded")),
        (
            &[(F, "for=203.0.113.7"), (X, "203.0.113.8")],
            Error::Conflict("address"),
        ),
        (
            &[(F, "for=203.0.113.8, for=203.0.113.7"), (X, "203.0.113.8")],
            Error::Conflict("address"),
        ),
    ];
    for (lines, error) in refused {
        assert_eq!(client(lines), Err(error), "{lines:?}");
    }
}

#[test]
fn scheme_and_host_are_those_at_the_clients_element() {
    let (proto, host) = ("x-forwarded-proto", "x-forwarded-host");
    let expect = |lines: &[(&'static str, &str)], transport, name: Option<&str>| {
        let found = read(&fields(lines), &proxies()).unwrap();
        let expected = ForwardedClient {
            address: found.address,
            transport,
            host: name.map(|name| HeaderValue::from_str(name).unwrap()),
        };
        assert_eq!(found, expected, "{lines:?}");
    };
    let (tls, plain) = (Some(Transport::Tls), Some(Transport::Plain));
    expect(
        &[(proto, "https"), (host, "Argocd.example:8443")],
        tls,
        Some("argocd.example:8443"),
    );
    expect(&[(proto, " HTTP ")], plain, None);
    expect(&[(proto, "wss")], tls, None);
    expect(&[(proto, "ws")], plain, None);
    expect(&[(host, "[2001:db8::1]:443")], None, Some("[2001:db8::1]:443"));
    let chain = "for=198.51.100.1;proto=http;host=evil.example, for=203.0.113.7;proto=https;host=\"a.example:443\", \
                 for=10.0.0.1;proto=http;host=inner";
    expect(&[(F, chain)], tls, Some("a.example:443"));
    // What the element does not say, the other fields may.
    expect(
        &[(F, "for=203.0.113.7;proto=https"), (host, "a.example")],
        tls,
        Some("a.example"),
    );
    expect(&[(F, "for=203.0.113.7;proto=HTTPS"), (proto, "https")], tls, None);

    let refused: [(&[(&'static str, &str)], Error); 11] = [
        (&[(proto, "ftp")], Error::Scheme("X-Forwarded-Proto")),
        (&[(proto, "https,http")], Error::Scheme("X-Forwarded-Proto")),
        (
            &[(proto, "https"), (proto, "https")],
            Error::Scheme("X-Forwarded-Proto"),
        ),
        (&[(host, "a, b")], Error::Host("X-Forwarded-Host")),
        (&[(host, "a"), (host, "a")], Error::Host("X-Forwarded-Host")),
        (&[(host, "a/b")], Error::Host("X-Forwarded-Host")),
        (&[(host, "user@a")], Error::Host("X-Forwarded-Host")),
        (&[(F, "for=203.0.113.7;proto=gopher")], Error::Scheme("Forwarded")),
        (&[(F, "for=203.0.113.7;host=\"a b\"")], Error::Host("Forwarded")),
        (
            &[(F, "for=203.0.113.7;proto=https"), (proto, "http")],
            Error::Conflict("scheme"),
        ),
        (&[(F, "for=203.0.113.7;host=a"), (host, "b")], Error::Conflict("host")),
    ];
    for (lines, error) in refused {
        assert_eq!(read(&fields(lines), &proxies()), Err(error), "{lines:?}");
    }
}
