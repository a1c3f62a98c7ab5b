package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Host is a host that callbacks may go to: "hooks.example", which means port 443, or "hooks.example:8443". A loopback
// address may stand in for the name: "127.0.0.1:8080", "[::1]:8080".
type Host string

// Hosts are the registered hosts, each in its canonical form. None means that no callback is let out.
type Hosts []Host

const (
	maxName     = 253 // bytes
	defaultPort = "443"
)

// The last label begins with a letter: what some resolvers read as a number (127.1, 0x7f.1) is no name.
var nameForm = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ParseHosts reads "hooks.example, crm.example:8443": comma separated, in upper or lower case. A loopback address is
// taken too, and is of use only with AllowLoopback; no other address is. Blank text is no hosts. The error names every
// fault by the number of its item and says how to mend it; it quotes nothing.
func ParseHosts(text string) (Hosts, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var hosts Hosts
	var faults []error
	for i, item := range strings.Split(text, ",") {
		host, fault := parseHost(lower(strings.TrimSpace(item)))
		if fault == "" && slices.Contains(hosts, host) {
			fault = "is a host that is listed before: remove it"
		}
		if fault != "" {
			faults = append(faults, fmt.Errorf("host %d of the list %s", i+1, fault))
			continue
		}
		hosts = append(hosts, host)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return hosts, nil
}

// parseHost answers a host, or what is wrong with it.
func parseHost(item string) (host Host, fault string) {
	switch {
	case item == "":
		return "", "is empty: remove the comma too many"
	case strings.ContainsAny(item, "/?#@"):
		return "", "is a URL or a part of one: write its host alone, hooks.example or hooks.example:8443"
	case strings.Contains(item, "*"):
		return "", "has a wildcard: list every host by its full name"
	case strings.ContainsFunc(item, func(r rune) bool { return r > 0x7e }):
		return "", "is not ASCII: write the name in its xn-- form"
	}
	name, port, hasPort := cutPort(item)
	if hasPort && !isPort(port) {
		return "", "has a bad port: write 1 to 65535 after the colon, or leave both out for 443"
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		if addr.Zone() != "" || !addr.Unmap().IsLoopback() {
			return "", "is an address: register the name that its certificate is for"
		}
	} else if len(name) > maxName || !nameForm.MatchString(name) {
		return "", "is not a host name: write letters, digits and hyphens between dots, with no dot at the end"
	}
	return canonical(name, port), ""
}

// cutPort is net.SplitHostPort for text that may have no port, or be a bare IPv6 address.
func cutPort(text string) (name, port string, hasPort bool) {
	if inner, ok := strings.CutPrefix(text, "["); ok {
		name, rest, closed := strings.Cut(inner, "]")
		if !closed || !strings.Contains(name, ":") {
			return text, "", false // no name has a bracket
		}
		port, hasPort = strings.CutPrefix(rest, ":")
		if rest != "" && !hasPort {
			return text, "", false
		}
		return name, port, hasPort
	}
	if strings.Count(text, ":") > 1 {
		return text, "", false
	}
	return strings.Cut(text, ":")
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0 && strconv.FormatUint(n, 10) == text
}

// canonical is the one way to write a host: an address unmapped, IPv6 in brackets, no port where it is 443.
func canonical(name, port string) Host {
	if addr, err := netip.ParseAddr(name); err == nil {
		addr = addr.Unmap()
		name = addr.String()
		if addr.Is6() {
			name = "[" + name + "]"
		}
	}
	if port == "" || port == defaultPort {
		return Host(name)
	}
	return Host(name + ":" + port)
}

// isLoopback reports whether a name without a port can only mean this machine.
func isLoopback(name string) bool {
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.Unmap().IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// lower changes ASCII alone: strings.ToLower turns the Kelvin sign into a k.
func lower(text string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, text)
}
