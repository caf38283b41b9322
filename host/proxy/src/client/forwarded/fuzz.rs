//! Fuzz target: the address that the trusted proxy adds is the client's, regardless of what a
//! client sends.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderValue};

use super::{FORWARDED, FORWARDED_FOR, read};
use tollgate_config::TrustedProxies;
use tollgate_fuzz::{Target, inputs};

pub(crate) const TARGETS: &[Target] = &[Target {
    name: "forwarded",
    run: forwarded,
    seeds,
}];

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

fn seeds() -> Vec<Vec<u8>> {
    inputs([
        "198.51.100.1, 10.0.0.1",
        "[2001:db8::1]:443, unknown, _hidden",
        "for=198.51.100.1;proto=https;host=a.example;by=_x, for=\"[2001:db8::1]:80\"",
        "for=\"_a, for=10.0.0.1",
        "for=\"a\\\"b\";for=x,,",
        "For=unknown ; ext=\"a;b,c\"\t,\tfor=10.0.0.1",
    ])
}

/// A proxy may add its client to the last line or in a separate line.
fn forwarded(data: &[u8]) {
    let trusted = TrustedProxies::try_new(["10.0.0.0/8"]).unwrap_or_default();
    for (name, client) in [(FORWARDED_FOR, "203.0.113.7"), (FORWARDED, "for=203.0.113.7")] {
        let Ok(sent) = HeaderValue::from_bytes(data) else {
            return;
        };
        let mut fields = HeaderMap::new();
        fields.insert(&name, sent.clone());
        if let Ok(claimed) = read(&fields, &trusted) {
            assert!(claimed.address.is_some(), "{sent:?}");
        }
        if let Ok(line) = HeaderValue::from_bytes(&[data, b", ", client.as_bytes()].concat()) {
            assert_is_client(&HeaderMap::from_iter([(name.clone(), line)]), &trusted);
        }
        fields.append(&name, HeaderValue::from_static(client));
        assert_is_client(&fields, &trusted);
    }
}

fn assert_is_client(fields: &HeaderMap, trusted: &TrustedProxies) {
    if let Ok(found) = read(fields, trusted) {
        assert_eq!(found.address, Some(CLIENT), "{fields:?}");
    }
}
