package notify

import "net/netip"

// globalUnicast is all of IPv6 that is handed out to networks. Outside of it lie loopback, link-local, unique-local,
// site-local, multicast, and NAT64, whose addresses stand for IPv4 ones.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// special are the ranges of IPv4, and those in globalUnicast, where no public host is. From IANA's registries of
// special-purpose addresses.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),       // this network, and unspecified
	netip.MustParsePrefix("10.0.0.0/8"),      // private
	netip.MustParsePrefix("100.64.0.0/10"),   // carrier-grade NAT
	netip.MustParsePrefix("127.0.0.0/8"),     // loopback
	netip.MustParsePrefix("169.254.0.0/16"),  // link-local, and clouds' metadata
	netip.MustParsePrefix("172.16.0.0/12"),   // private
	netip.MustParsePrefix("192.0.0.0/24"),    // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),    // documentation
	netip.MustParsePrefix("192.88.99.0/24"),  // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),  // private
	netip.MustParsePrefix("198.18.0.0/15"),   // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"), // documentation
	netip.MustParsePrefix("203.0.113.0/24"),  // documentation
	netip.MustParsePrefix("224.0.0.0/4"),     // multicast
	netip.MustParsePrefix("240.0.0.0/4"),     // reserved, and broadcast
	netip.MustParsePrefix("2001::/23"),       // protocol assignments: Teredo, benchmarks, ORCHID
	netip.MustParsePrefix("2001:db8::/32"),   // documentation
	netip.MustParsePrefix("2002::/16"),       // 6to4, which stands for an IPv4 address
	netip.MustParsePrefix("3fff::/20"),       // documentation
}

// refused reports whether an address is not a public host's.
func refused(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("") // no prefix contains an address with a zone
	if !addr.IsValid() || addr.Is6() && !globalUnicast.Contains(addr) {
		return true
	}
	for _, prefix := range special {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}
