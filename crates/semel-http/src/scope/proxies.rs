//! The proxies whose word about their callers counts.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// Networks of proxies that verify who calls, and write it into a header. None by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrustedProxies(Vec<Network>);

/// An address, or the network of a prefix: `10.0.0.0/8`, `192.0.2.7`, `fd00::/8`, `::1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// Why a text is no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// There is no address in it.
    #[error("a network is written 10.0.0.0/8, 192.0.2.7, fd00::/8 or ::1")]
    Form,
    /// The prefix is longer than the address.
    #[error("a prefix has at most {max} bits")]
    Prefix {
        /// The bits of such an address.
        max: u8,
    },
    /// The address has bits beside its prefix: one of the two was not meant so.
    #[error("the address has bits beside its prefix; did you mean '{0}'?")]
    Beside(Network),
}

impl TrustedProxies {
    /// Whether an address belongs to one of them. An IPv4 address in IPv6 form (`::ffff:10.0.0.1`) is the IPv4 one.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }

    /// Those that were named.
    #[must_use]
    pub fn networks(&self) -> &[Network] {
        &self.0
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Network> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = Network>>(networks: I) -> TrustedProxies {
        TrustedProxies(networks.into_iter().collect())
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        self.base.is_ipv4() == address.is_ipv4() && masked(address, self.prefix) == self.base
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let written: IpAddr = address.parse().map_err(|_| NetworkError::Form)?;
        let address = written.to_canonical();
        let max = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => max,
            // What counts in ::ffff:10.0.0.0/104 would be a guess.
            Some(_) if address != written => return Err(NetworkError::Form),
            Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|prefix| *prefix <= max).ok_or(NetworkError::Prefix { max })?
            }
            Some(_) => return Err(NetworkError::Form),
        };
        let network = Network { base: masked(address, prefix), prefix };
        if network.base == address { Ok(network) } else { Err(NetworkError::Beside(network)) }
    }
}

fn masked(address: IpAddr, prefix: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            Ipv4Addr::from_bits(address.to_bits() & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            Ipv6Addr::from_bits(address.to_bits() & mask).into()
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let max = if self.base.is_ipv4() { 32 } else { 128 };
        match self.prefix {
            prefix if prefix == max => self.base.fmt(f),
            prefix => write!(f, "{}/{prefix}", self.base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(networks: &[&str]) -> TrustedProxies {
        networks.iter().map(|text| text.parse::<Network>().unwrap()).collect()
    }

    fn holds(network: &str, address: &str) -> bool {
        proxies(&[network]).contains(address.parse().unwrap())
    }

    #[test]
    fn an_address_is_in_its_network_and_in_no_other() {
        for (network, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("192.0.2.128/25", "192.0.2.128", "192.0.2.127"),
            ("192.0.2.7", "192.0.2.7", "192.0.2.6"),
            ("192.0.2.7/32", "192.0.2.7", "192.0.2.8"),
            ("0.0.0.0/0", "255.255.255.255", "::1"),
            ("::/0", "::1", "127.0.0.1"),
            ("::1", "::1", "::2"),
            ("fd00::/9", "fd7f::1", "fd80::1"),
        ] {
            assert!(holds(network, inside), "{inside} is in {network}");
            assert!(!holds(network, outside), "{outside} is not in {network}");
        }
        assert!(!TrustedProxies::default().contains([127, 0, 0, 1].into()));
    }

    #[test]
    fn an_ipv4_address_in_ipv6_form_is_the_same_one() {
        assert!(holds("10.0.0.0/8", "::ffff:10.1.2.3"));
        assert!(!holds("::/0", "::ffff:10.1.2.3"));
        assert!(holds("::ffff:10.1.2.3", "10.1.2.3"));
    }

    #[test]
    fn what_is_no_network_is_refused_and_never_guessed_at() {
        for text in
            ["", "10", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "10.0.0.0/8/8", "localhost", "*", " ::1"]
        {
            assert_eq!(text.parse::<Network>(), Err(NetworkError::Form), "{text}");
        }
        assert_eq!("::ffff:10.0.0.0/104".parse::<Network>(), Err(NetworkError::Form));
        assert_eq!("10.0.0.0/33".parse::<Network>(), Err(NetworkError::Prefix { max: 32 }));
        assert_eq!("::/999".parse::<Network>(), Err(NetworkError::Prefix { max: 128 }));
        let error = "10.1.2.3/8".parse::<Network>().unwrap_err();
        assert!(error.to_string().ends_with("did you mean '10.0.0.0/8'?"), "{error}");
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["10.0.0.0/8", "192.0.2.7", "fd00::/8", "::1", "0.0.0.0/0"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
    }
}
