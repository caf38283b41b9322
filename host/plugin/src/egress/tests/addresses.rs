//! Every address range, with and without the scope that permits it, and forbidden addresses in DNS
//! responses.

use super::super::address::{AddressScope, check};
use super::super::{EgressAllowList, EgressClient, Error};
use super::fake_network::{Answer, Authority, FakeNetwork, HOST, PUBLIC, entry, fetch, get, ok_answer};
use std::sync::Arc;
use tollgate_config::EgressEntry;

#[test]
fn each_address_range_is_refused_with_its_own_code() {
    for (address, reason) in [
        ("169.254.169.254", "address-metadata"),
        ("169.254.170.23", "address-metadata"),
        ("169.254.170.2", "address-metadata"),
        ("168.63.129.16", "address-metadata"),
        ("fd00:ec2::254", "address-metadata"),
        ("fd00:ec2::23", "address-metadata"),
        ("fd20:ce::254", "address-metadata"),
        ("169.254.0.1", "address-link-local"),
        ("fe80::1", "address-link-local"),
        ("febf:ffff::1", "address-link-local"),
        ("127.0.0.1", "address-loopback"),
        ("127.255.255.254", "address-loopback"),
        ("::1", "address-loopback"),
        ("10.0.0.1", "address-private"),
        ("172.16.0.1", "address-private"),
        ("172.31.255.255", "address-private"),
        ("192.168.1.1", "address-private"),
        ("fc00::1", "address-private"),
        ("fdff::1", "address-private"),
        ("100.64.0.1", "address-shared"),
        ("100.127.255.255", "address-shared"),
        ("100.100.100.200", "address-metadata"),
        ("::ffff:93.184.216.34", "address-embedded"),
        ("::ffff:169.254.169.254", "address-embedded"),
        ("::ffff:0:93.184.216.34", "address-embedded"),
        ("::93.184.216.34", "address-embedded"),
        ("64:ff9b::a9fe:a9fe", "address-embedded"),
        ("64:ff9b::5db8:d822", "address-embedded"),
        ("64:ff9b:1::1", "address-embedded"),
        ("2002:a9fe:a9fe::1", "address-embedded"),
        ("2001:0:1::1", "address-embedded"),
        ("192.88.99.1", "address-embedded"),
        ("0.0.0.0", "address-unspecified"),
        ("0.1.2.3", "address-unspecified"),
        ("::", "address-unspecified"),
        ("224.0.0.1", "address-multicast"),
        ("239.255.255.255", "address-multicast"),
        ("ff02::1", "address-multicast"),
        ("255.255.255.255", "address-broadcast"),
        ("192.0.2.1", "address-documentation"),
        ("198.51.100.1", "address-documentation"),
        ("203.0.113.1", "address-documentation"),
        ("198.18.0.1", "address-documentation"),
        ("198.19.255.255", "address-documentation"),
        ("2001:db8::1", "address-documentation"),
        ("2001:2::1", "address-documentation"),
        ("3fff::1", "address-documentation"),
        ("192.0.0.192", "address-reserved"),
        ("240.0.0.1", "address-reserved"),
        ("2001:10::1", "address-reserved"),
        ("100::1", "address-reserved"),
        ("fec0::1", "address-reserved"),
        ("5f00::1", "address-reserved"),
        ("4000::1", "address-reserved"),
    ] {
        let parsed = address.parse().unwrap();
        for scope in [AddressScope::Public, AddressScope::Private, AddressScope::Loopback] {
            let lifted = match reason {
                "address-private" => scope == AddressScope::Private,
                "address-loopback" => scope == AddressScope::Loopback,
                _ => false,
            };
            let expected = if lifted { Ok(()) } else { Err(reason) };
            assert_eq!(
                check(parsed, scope).map_err(<&str>::from),
                expected,
                "{address} {scope:?}"
            );
        }
    }
}

#[test]
fn addresses_next_to_the_ranges_are_public() {
    for address in [
        PUBLIC,
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "192.167.255.255",
        "192.169.0.1",
        "198.17.255.255",
        "198.20.0.1",
        "223.255.255.255",
        "2606:4700::1111",
        "2001:4860:4860::8888",
        "2001:200::1",
        "2003::1",
        "3ffe::1",
    ] {
        assert_eq!(
            check(address.parse().unwrap(), AddressScope::Public),
            Ok(()),
            "{address}"
        );
    }
}

#[tokio::test]
async fn a_name_that_resolves_to_a_forbidden_address_is_refused_before_connecting() {
    for address in ["169.254.169.254", "127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3", "fd00::1"] {
        let (result, fake_network) = fetch(ok_answer(), |fake_network| fake_network.name(HOST, &[&[address]])).await;
        let Err(Error::Denied(denied)) = result else {
            panic!("{address}: {result:?}");
        };
        let expected = check(address.parse().unwrap(), AddressScope::Public).unwrap_err();
        assert_eq!(denied.code, expected);
        assert!(denied.message.contains(HOST), "{}", denied.message);
        assert!(fake_network.connected.lock().unwrap().is_empty(), "{address}");
    }
}

#[tokio::test]
async fn one_forbidden_address_refuses_the_whole_name() {
    let (result, fake_network) = fetch(ok_answer(), |fake_network| {
        fake_network.name(HOST, &[&[PUBLIC, "127.0.0.1"]])
    })
    .await;
    assert!(matches!(result, Err(Error::Denied(_))));
    assert!(fake_network.connected.lock().unwrap().is_empty());
    let (result, _) = fetch(ok_answer(), |fake_network| {
        fake_network.name(HOST, &[&[PUBLIC, "2606:4700::1111"]])
    })
    .await;
    assert_eq!(result.unwrap().status, 200);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_that_address_is_used() {
    let (result, fake_network) = fetch(ok_answer(), |fake_network| {
        fake_network.name(HOST, &[&[PUBLIC], &["127.0.0.1"]])
    })
    .await;
    assert_eq!(result.unwrap().peer.ip().to_string(), PUBLIC);
    assert_eq!(*fake_network.resolved.lock().unwrap(), [HOST]);
    let connected = fake_network.connected.lock().unwrap().clone();
    assert_eq!(connected, [format!("{PUBLIC}:443").parse().unwrap()]);
}

#[tokio::test]
async fn every_resolution_of_a_rebinding_name_is_checked() {
    let authority = Authority::new();
    let fake_network = FakeNetwork::new(authority.server(HOST, 2099, &[]), ok_answer());
    fake_network.name(HOST, &[&[PUBLIC], &["169.254.169.254"]]);
    let client = EgressClient::with_network(Arc::new(fake_network));
    let allow_list = EgressAllowList::new([&entry(HOST, &authority)]).unwrap();
    let request = || get(&allow_list, &format!("https://{HOST}/")).unwrap();
    assert_eq!(client.send(request()).await.unwrap().status, 200);
    let Err(Error::Denied(denied)) = client.send(request()).await else {
        panic!("the second request was sent");
    };
    assert_eq!(<&str>::from(denied.code), "address-metadata");
}

/// Sends a request to the host of `spec`, which resolves to `address`.
async fn send_to(spec: EgressEntry, address: &str) -> Result<u16, String> {
    let authority = Authority::new();
    let name = spec.host.clone();
    let fake_network = FakeNetwork::new(
        authority.server(&name, 2099, &[]),
        Answer::Http(204, Vec::new(), Vec::new()),
    );
    fake_network.name(&name, &[&[address]]);
    let spec = EgressEntry {
        ca: Some(authority.pem.clone()),
        ..spec
    };
    let allow_list = EgressAllowList::new([&spec]).unwrap();
    let request = get(&allow_list, &format!("https://{name}/v1/x")).unwrap();
    match EgressClient::with_network(Arc::new(fake_network)).send(request).await {
        Ok(response) => Ok(response.status.as_u16()),
        Err(Error::Denied(denied)) => Err(<&str>::from(denied.code).to_owned()),
        Err(other) => Err(other.to_string()),
    }
}

#[tokio::test]
async fn private_and_loopback_permit_only_their_own_ranges() {
    let spec = |host: &str, private, loopback| EgressEntry {
        host: host.to_owned(),
        private,
        loopback,
        ..EgressEntry::default()
    };
    let vault = "vault.corp.example";
    assert_eq!(send_to(spec(vault, true, false), "10.1.2.3").await, Ok(204));
    assert_eq!(send_to(spec(vault, true, false), "fd12::3").await, Ok(204));
    let refused = |code: &str| Err(code.to_owned());
    assert_eq!(
        send_to(spec(vault, false, false), "10.1.2.3").await,
        refused("address-private")
    );
    assert_eq!(
        send_to(spec(vault, true, false), "127.0.0.1").await,
        refused("address-loopback")
    );
    assert_eq!(
        send_to(spec(vault, true, false), "169.254.169.254").await,
        refused("address-metadata")
    );
    assert_eq!(
        send_to(spec(vault, true, false), "fd00:ec2::254").await,
        refused("address-metadata")
    );
    assert_eq!(send_to(spec("localhost", false, true), "127.0.0.1").await, Ok(204));
    assert_eq!(send_to(spec("localhost", false, true), "::1").await, Ok(204));
    assert_eq!(
        send_to(spec("localhost", false, false), "127.0.0.1").await,
        refused("address-loopback")
    );
    assert_eq!(
        send_to(spec("localhost", false, true), "10.0.0.1").await,
        refused("address-private")
    );
}
