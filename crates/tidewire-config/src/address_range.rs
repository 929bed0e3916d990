//! Ranges of addresses in options: one address, or a network in CIDR notation.

use std::net::{IpAddr, Ipv6Addr};

use super::value::Scalar;

/// One address, or all addresses with the same first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The bits behind the prefix are 0.
    network: IpAddr,
    prefix_bits: u8,
}

impl AddressRange {
    /// Whether the address is in the range. An IPv4 address equals its form as an IPv4-mapped IPv6 address.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4()
            && masked(address, self.prefix_bits) == self.network
    }
}

/// The address with all bits after the first `bits` set to 0.
fn masked(address: IpAddr, bits: u8) -> IpAddr {
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((address.to_bits() & mask).into())
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Scalar for AddressRange {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not an address; write it as 10.0.0.7 or 10.0.0.0/8");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = width(address);
        let prefix_bits = match bits {
            None => width,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(wrong)?,
        };
        let network = masked(address, prefix_bits);
        if network != address {
            return Err(format!(
                "{text:?} has bits behind its prefix; did you mean \"{network}/{prefix_bits}\"?"
            ));
        }
        Ok(Self {
            network,
            prefix_bits,
        })
    }

    fn format(&self) -> String {
        let Self {
            network,
            prefix_bits,
        } = self;
        if *prefix_bits == width(*network) {
            format!("\"{network}\"")
        } else {
            format!("\"{network}/{prefix_bits}\"")
        }
    }

    fn kind() -> String {
        "an address or a network as `10.0.0.0/8`".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_what_begins_like_it() {
        let check = |range: &str, address: &str, expected: bool| {
            let range = AddressRange::parse(range).expect("a range");
            let address = address.parse().expect("an address");
            assert_eq!(range.contains(address), expected, "{range:?} {address}");
        };
        check("10.0.0.0/8", "10.255.255.255", true);
        check("10.0.0.0/8", "11.0.0.0", false);
        check("192.0.2.7", "192.0.2.7", true);
        check("192.0.2.7", "::ffff:192.0.2.7", true);
        check("192.0.2.7", "192.0.2.8", false);
        check("0.0.0.0/0", "203.0.113.9", true);
        check("0.0.0.0/0", "2001:db8::1", false);
        check("2001:db8::/32", "2001:db8:ffff::1", true);
        check("2001:db8::/32", "2001:db9::1", false);
        check("::/0", "2001:db9::1", true);
        check("::1", "::1", true);
    }

    #[test]
    fn invalid_ranges_are_refused() {
        let check = |text: &str, part: &str| {
            let error = AddressRange::parse(text).expect_err(text);
            assert!(error.contains(part), "{error}");
        };
        for text in [
            "",
            "proxy",
            "10.0.0.0/33",
            "10.0.0.0/",
            "10/8",
            "::/129",
            "10.0.0.0/-1",
        ] {
            check(text, "is not an address");
        }
        check("10.0.0.7/8", "10.0.0.0/8");
        check("2001:db8::1/32", "2001:db8::/32");
    }

    #[test]
    fn written_values_are_read_back_unchanged() {
        for text in ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "::1"] {
            let range = AddressRange::parse(text).expect("a range");
            assert_eq!(range.format(), format!("{text:?}"));
        }
    }
}
