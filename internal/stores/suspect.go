package stores

import (
	"slices"
	"strings"
)

// keyWords are parts of a column's name that make it look like a person's key.
var keyWords = []string{
	"identity", "subject", "person", "user_id", "userid", "customer", "email", "e_mail", "phone", "msisdn", "account_id",
	"member", "contact", "visitor", "device_id", "client_id", "profile_id", "login", "username", "ssn", "passport",
}

// LooksLikeKey reports whether a column's name looks like that of a subject's key.
func LooksLikeKey(column string) bool {
	name := strings.ToLower(column)
	for _, word := range keyWords {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// Covers reports whether the table counts by the column of the physical table of that name. The columns of a table that
// is ours are all known: those that it doesn't count by are no keys.
func (t Table) Covers(table, column string) bool {
	if !strings.EqualFold(t.Name, table) {
		return false
	}
	if slices.ContainsFunc(t.Columns, func(c Column) bool { return strings.EqualFold(c.Name, column) }) {
		return true
	}
	for _, c := range append([]string{t.Tenant, t.Source, t.SourceRef}, t.Identities...) {
		if strings.EqualFold(c, column) {
			return true
		}
	}
	return false
}
