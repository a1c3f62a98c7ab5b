// Package auth decides who calls, what they may do and for which tenants, and makes our own calls to peers known.
//
// Callers prove themselves with a Google ID token. On Cloud Run behind IAM the platform checks a token too, strips the
// signature of the one that it used, and prefers X-Serverless-Authorization. So a caller sends two headers: that one,
// which is never read here, and Authorization, which is verified.
package auth

import (
	"errors"
	"slices"
	"strings"
)

// Errors of an authentication. They are wrapped with a few words on why, which hold nothing of the token: for the log,
// not for the caller.
var (
	// ErrUnauthenticated says that the request carries no good token: 401.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrForbidden says that the caller is known well enough, and not allowed: 403.
	ErrForbidden = errors.New("not allowed")
	// ErrUnavailable says that the keys that tokens are checked with could not be had: 503, the same call may pass later.
	ErrUnavailable = errors.New("tokens can not be checked now")
)

// Role is a set of things that a caller may do.
type Role uint8

// The roles. Allowing lifts a suppression: an importer that may write may not do that.
const (
	Read Role = 1 << iota
	Write
	Erase
	Allow
	// Drive lets a scheduler have done what is due of approved erasure requests, and nothing else.
	Drive
	// Admin acts on erasure requests. No allow-list of callers can give it: principals have a list and an audience of
	// their own.
	Admin
)

// roleNames are the words of ALLOWED_CALLER_SA, in the order in which they are written.
var roleNames = []struct {
	role Role
	name string
}{{Read, "read"}, {Write, "write"}, {Erase, "erase"}, {Allow, "allow"}, {Drive, "drive"}}

// Has reports whether every role of the other set is in this one. No set has the empty one: a question that was
// forgotten is answered with no.
func (r Role) Has(other Role) bool { return other != 0 && r&other == other }

// String is the roles as ALLOWED_CALLER_SA writes them: "read+erase".
func (r Role) String() string {
	var names []string
	for _, n := range roleNames {
		if r.Has(n.role) {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "+")
}

// Caller is somebody who may call: an entry of the allow-list, or who an authentication found. The zero value may do
// nothing.
type Caller struct {
	Email   string   // lower case
	Sub     string   // Google's number of the account; in an allow-list "" pins none
	Roles   Role     // what they may do
	Tenants []string // for whom; nil is every tenant
}

// Has reports whether the caller has the role for any tenant at all: what can be asked before a request says for whom.
func (c Caller) Has(role Role) bool { return c.Roles.Has(role) }

// May reports whether the caller has the role for the tenant. It MUST be asked with the tenant that is then served.
func (c Caller) May(role Role, tenant string) bool {
	return c.Has(role) && (c.Tenants == nil || slices.Contains(c.Tenants, tenant))
}

// Actor names the caller in audit rows and logs: the account's e-mail. It is not the data of any subject.
func (c Caller) Actor() string { return c.Email }
