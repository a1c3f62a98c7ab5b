package cli

import (
	"context"
	"strings"
	"sync"

	"recount/internal/auth"
	"recount/internal/wire"
)

// newTokens makes the source that the flags ask for.
func newTokens(g *globals) (tokenSource, error) {
	if g.Auth == "google" {
		if len(g.Token) > 0 {
			return nil, usagef("--token and --auth google can't be used together")
		}
		return &googleTokens{byAudience: map[string]*auth.Tokens{}}, nil
	}
	given := givenTokens{}
	for _, pair := range g.Token {
		name, token, named := strings.Cut(strings.TrimSpace(pair), "=")
		if !named {
			name, token = "", name
		}
		if named && !wire.IsName(name) || token == "" || !isToken(token) {
			return nil, usagef("a token is given as TOKEN or NAME=TOKEN, as it was signed")
		}
		given[name] = token
	}
	return given, nil
}

// isToken reports whether a text can be an ID token: base64url and dots.
func isToken(token string) bool {
	return strings.Trim(token, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.") == ""
}

// givenTokens are tokens by target name; "" is for every target that has none of its own.
type givenTokens map[string]string

func (g givenTokens) token(_ context.Context, to target) (string, error) {
	if own, ok := g[to.name]; ok {
		return own, nil
	}
	return g[""], nil
}

// googleTokens takes a token for each address from Application Default Credentials.
type googleTokens struct {
	mu         sync.Mutex
	byAudience map[string]*auth.Tokens
}

func (g *googleTokens) token(ctx context.Context, to target) (string, error) {
	g.mu.Lock()
	tokens := g.byAudience[to.audience()]
	if tokens == nil {
		tokens = auth.GoogleTokens(to.audience())
		g.byAudience[to.audience()] = tokens
	}
	g.mu.Unlock()
	return tokens.Token(ctx) //nolint:wrapcheck // *auth.TokenError says all that may be said
}
