//! The load balancers and ingresses in front of the public listener.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

/// Networks of the proxies whose word on their clients is taken: `Forwarded`, `X-Forwarded-For`,
/// `X-Forwarded-Proto` and `X-Forwarded-Host`. By default there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedProxies(Arc<[IpNet]>);

/// Whether connections to the public listener begin with a header of the PROXY protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// They begin with TLS or HTTP.
    #[default]
    Absent,
    /// Each begins with a header of version 2, and only trusted proxies may connect.
    Required,
}

/// Why a text is not a network that may be trusted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// Neither a network nor an address.
    #[error("`{0}` is not a network such as `10.0.0.0/8` or an IP address")]
    Syntax(String),
    /// An address within a network, in place of the network.
    #[error("`{given}` has bits beyond its prefix, the network is `{network}`")]
    HostBits {
        /// As it is written.
        given: String,
        /// What it may mean.
        network: IpNet,
    },
    /// IPv4 in the form of IPv6. Addresses are compared as IPv4.
    #[error("`{0}` never matches, write it as an IPv4 network")]
    Mapped(String),
    /// Everybody.
    #[error("`{0}` is every address, and then every client could choose its own; name the networks of the proxies")]
    Everybody(String),
}

impl TrustedProxies {
    /// Reads networks, such as `10.0.0.0/8`, and single addresses.
    ///
    /// # Errors
    /// [`NetworkError`] for the first text that is neither.
    pub fn try_new<'a>(networks: impl IntoIterator<Item = &'a str>) -> Result<Self, NetworkError> {
        networks
            .into_iter()
            .map(parse)
            .collect::<Result<Arc<[_]>, _>>()
            .map(Self)
    }

    /// Whether no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the address belongs to a trusted proxy. An IPv4 address in the form of IPv6 counts
    /// as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        // A socket for IPv6 and IPv4 gives IPv4 peers as mapped addresses, and networks are never mapped.
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl FromIterator<IpNet> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

pub(crate) fn parse(text: &str) -> Result<IpNet, NetworkError> {
    let network: IpNet = match text.parse::<IpAddr>() {
        Ok(address) => address.into(),
        Err(_) => text.parse().map_err(|_| NetworkError::Syntax(text.to_owned()))?,
    };
    let is_mapped = matches!(network.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    if network.prefix_len() == 0 {
        Err(NetworkError::Everybody(text.to_owned()))
    } else if is_mapped {
        Err(NetworkError::Mapped(text.to_owned()))
    } else if network != network.trunc() {
        let (given, network) = (text.to_owned(), network.trunc());
        Err(NetworkError::HostBits { given, network })
    } else {
        Ok(network)
    }
}

#[cfg(test)]
mod tests {
    use super::{NetworkError, TrustedProxies};

    #[test]
    fn addresses_of_the_networks_are_trusted_and_no_others() {
        let proxies = TrustedProxies::try_new(["10.1.0.0/16", "192.0.2.7", "2001:db8::/32"]).unwrap();
        for (address, expected) in [
            ("10.1.255.255", true),
            ("10.2.0.0", false),
            ("192.0.2.7", true),
            ("192.0.2.8", false),
            ("::ffff:10.1.0.1", true),
            ("::ffff:10.2.0.1", false),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
            // Not the IPv4 address with the same bits.
            ("::10.1.0.1", false),
        ] {
            assert_eq!(proxies.contains(address.parse().unwrap()), expected, "{address}");
        }
        assert!(!TrustedProxies::default().contains("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_of_proxies_is_refused() {
        let refused = |text: &str| TrustedProxies::try_new([text]).unwrap_err();
        for text in [
            "",
            "lb.example.org",
            "10.0.0.0/33",
            "10.0.0/8",
            "fe80::1%eth0",
            "10.0.0.1:80",
        ] {
            assert_eq!(refused(text), NetworkError::Syntax(text.to_owned()), "{text}");
        }
        for text in ["0.0.0.0/0", "::/0"] {
            assert_eq!(refused(text), NetworkError::Everybody(text.to_owned()), "{text}");
        }
        assert!(matches!(refused("::ffff:10.0.0.0/104"), NetworkError::Mapped(_)));
        let error = refused("10.0.0.1/8").to_string();
        assert_eq!(
            error,
            "`10.0.0.1/8` has bits beyond its prefix, the network is `10.0.0.0/8`"
        );
    }
}
