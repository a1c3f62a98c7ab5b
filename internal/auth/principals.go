package auth

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// HeaderDevPrincipal names the principal of an admin call with AUTH_MODE=off, so that dual approval can be tried. It is
// ignored where tokens are checked.
const HeaderDevPrincipal = "X-Dev-Principal"

// ParsePrincipals reads who may act on erasure requests: entries of the form email[#sub] with commas between them. A pinned
// account can't be made anew under the same address. The error joins every fault.
func ParsePrincipals(text string) (Callers, error) {
	var principals Callers
	var faults []error
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" || strings.Contains(entry, "=") {
			faults = append(faults, fmt.Errorf("entry %d: write email[#sub], without roles: a principal has one, and it is theirs alone", i+1))
			continue
		}
		principal, wrong := parseCaller(entry)
		principal.Roles = Admin
		if slices.ContainsFunc(principals, func(other Caller) bool {
			return other.Email == principal.Email || other.Sub != "" && other.Sub == principal.Sub
		}) {
			wrong = append(wrong, "the address or the account is listed twice: two entries are two people, who approve together")
		}
		for _, problem := range wrong {
			faults = append(faults, fmt.Errorf("entry %d: %s", i+1, problem))
		}
		principals = append(principals, principal)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return principals, nil
}

// DevPrincipals believes the header that names a principal, on loopback: AUTH_MODE=off.
type DevPrincipals struct{ loopback *Loopback }

// NewDevPrincipals MUST be given the address that is listened on. It refuses one that other machines may reach.
func NewDevPrincipals(listenAddr string) (*DevPrincipals, error) {
	loopback, err := NewLoopback(listenAddr)
	if err != nil {
		return nil, err
	}
	return &DevPrincipals{loopback: loopback}, nil
}

// Authenticate answers the principal that the header names. Errors: ErrUnauthenticated, ErrForbidden.
func (d *DevPrincipals) Authenticate(r *http.Request) (Caller, error) {
	if _, err := d.loopback.Authenticate(r); err != nil {
		return Caller{}, err
	}
	given := r.Header.Values(HeaderDevPrincipal)
	if len(given) != 1 {
		return Caller{}, fmt.Errorf("%w: an admin call names its principal once, in %s", ErrUnauthenticated, HeaderDevPrincipal)
	}
	email := lowerASCII(strings.TrimSpace(given[0]))
	if !isEmail(email) {
		return Caller{}, fmt.Errorf("%w: %s holds no e-mail address", ErrUnauthenticated, HeaderDevPrincipal)
	}
	return Caller{Email: email, Sub: "dev-" + email, Roles: Admin}, nil
}
