package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"recount/internal/subject"
)

// defaultRoles are those of an entry that names none.
const defaultRoles = Read | Write | Erase

// maxEmail and maxSub are the longest that Google makes.
const (
	maxEmail = 254
	maxSub   = 255
)

const (
	lower    = "abcdefghijklmnopqrstuvwxyz"
	alphanum = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
)

// Callers is an allow-list.
type Callers []Caller

// ParseCallers reads an allow-list: entries of the form email[#sub][=roles[@tenants]] with commas between them. Roles are
// read, write, erase, allow and drive with "+" between them, by default read+write+erase; tenants have "|" between them, by
// default every tenant. Spaces around an entry are ignored.
//
// E-mail addresses are compared without regard to ASCII case, as Google does; an address with any other letter is
// refused, because Unicode folds some of them into ASCII ones (the Kelvin sign is a k). The error joins every fault, one
// for each, with how to mend it.
func ParseCallers(text string) (Callers, error) {
	var callers Callers
	var faults []error
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			faults = append(faults, fmt.Errorf("entry %d is empty: write email[#sub][=roles[@tenants]], or take the comma away", i+1))
			continue
		}
		caller, wrong := parseCaller(entry)
		if slices.ContainsFunc(callers, func(c Caller) bool { return c.Email == caller.Email }) {
			wrong = append(wrong, "the address is listed twice: keep one entry, with all of its roles and tenants")
		}
		for _, text := range wrong {
			faults = append(faults, fmt.Errorf("entry %d: %s", i+1, text))
		}
		callers = append(callers, caller)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return callers, nil
}

// parseCaller answers what is wrong with an entry, each with how to mend it.
func parseCaller(entry string) (c Caller, wrong []string) {
	fault := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	who, what, hasRoles := strings.Cut(entry, "=")
	email, sub, pinned := strings.Cut(who, "#")
	c = Caller{Email: lowerASCII(email), Sub: sub, Roles: defaultRoles}
	if !isEmail(c.Email) {
		fault("%q is not an e-mail address: write the service account's, such as name@project.iam.gserviceaccount.com", email)
	}
	if pinned && !isSub(sub) {
		fault("%q is not an account's unique id: write the number that `gcloud iam service-accounts describe` shows, or take the # away", sub)
	}
	if !hasRoles {
		return c, wrong
	}
	roles, tenants, hasTenants := strings.Cut(what, "@")
	c.Roles = 0
	for _, name := range strings.Split(roles, "+") {
		role := roleOf(name)
		switch {
		case role == 0:
			fault("role %q is none of read, write, erase, allow, drive: join them with +, such as read+erase", name)
		case c.Roles.Has(role):
			fault("role %q is written twice: write it once", name)
		}
		c.Roles |= role
	}
	if !hasTenants {
		return c, wrong
	}
	for _, tenant := range strings.Split(tenants, "|") {
		switch {
		case subject.CheckTenant(tenant) != nil:
			fault("tenant %q does not match [a-z0-9][a-z0-9_-]{0,62}: join tenants with |, or take the @ away for every tenant", tenant)
		case slices.Contains(c.Tenants, tenant):
			fault("tenant %q is written twice: write it once", tenant)
		}
		c.Tenants = append(c.Tenants, tenant)
	}
	return c, wrong
}

// String writes the list as ParseCallers reads it, with every default spelled out.
func (cs Callers) String() string {
	entries := make([]string, len(cs))
	for i, c := range cs {
		entries[i] = c.Email
		if c.Sub != "" {
			entries[i] += "#" + c.Sub
		}
		entries[i] += "=" + c.Roles.String()
		if c.Tenants != nil {
			entries[i] += "@" + strings.Join(c.Tenants, "|")
		}
	}
	return strings.Join(entries, ",")
}

func roleOf(name string) Role {
	for _, n := range roleNames {
		if n.name == name {
			return n.role
		}
	}
	return 0
}

// isEmail takes what Google gives to accounts, in lower case, and leaves out what has a meaning in an allow-list.
func isEmail(text string) bool {
	local, domain, found := strings.Cut(text, "@")
	return found && len(text) <= maxEmail && local != "" && strings.Trim(local, lower+"0123456789._%+-'") == "" &&
		domain != "" && strings.Trim(domain, lower+"0123456789.-") == "" &&
		!strings.HasPrefix(domain, ".") && !strings.HasSuffix(domain, ".") && !strings.Contains(domain, "..") // "x." is "x" again
}

func isSub(text string) bool {
	return text != "" && len(text) <= maxSub && strings.Trim(text, alphanum+"_-") == ""
}

// lowerASCII leaves letters alone that are not ASCII.
func lowerASCII(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, text)
}
