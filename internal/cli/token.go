package cli

import (
	"context"
	"strings"

	"recount/internal/wire"
)

// newTokens makes the source that the flags ask for.
func newTokens(_ context.Context, g *globals) (tokenSource, error) {
	given := givenTokens{}
	for _, pair := range g.Token {
		name, token, named := strings.Cut(strings.TrimSpace(pair), "=")
		if !named {
			name, token = "", name
		}
		if named && !wire.IsName(name) || token == "" || !isToken(token) {
			return nil, usagef("a token is given as TOKEN or NAME=TOKEN, as the service signed it")
		}
		given[name] = token
	}
	return given, nil
}

// isToken reports whether a text can stand in a header: a JWT is base64url and dots.
func isToken(token string) bool {
	return strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~+/=") == ""
}

// givenTokens are tokens by target name; "" is for every target that has none of its own.
type givenTokens map[string]string

func (g givenTokens) token(_ context.Context, to target) (string, error) {
	if own, ok := g[to.name]; ok {
		return own, nil
	}
	return g[""], nil
}
