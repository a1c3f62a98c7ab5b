package cli

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"recount/internal/subject"
	"recount/internal/wire"
)

var pathChecks = []check{
	{
		name: "DELETE by path and by body are about one person",
		mend: "Take the id from the escaped path, decode it once, and treat both forms alike.",
		run:  samePerson(func(id string) string { return url.PathEscape(id) }, ""),
	},
	{
		name: "An id's own marks arrive unchanged, however they are escaped",
		mend: "Decode the escaped path exactly once: ':' and '%3A', '@' and '%40' are one id, '+' is a plus, and an id may end in ':erase'.",
		run: func(ctx context.Context, p *peer) error {
			const id = "/x y+z@é#?:erase" // every byte escaped, then as few as a path allows
			all := func(id string) string {
				var out strings.Builder
				for i := range len(id) {
					fmt.Fprintf(&out, "%%%02X", id[i])
				}
				return out.String()
			}
			if err := samePerson(all, id)(ctx, p); err != nil {
				return err
			}
			return samePerson(url.PathEscape, id)(ctx, p)
		},
	},
	{
		name: "The path is decoded exactly once: a%2Fb and a%252Fb are two people",
		mend: "Route on the escaped path and decode the id segment once. Decoding twice, or not at all, erases the wrong person.",
		run:  checkDecodedOnce,
	},
	{
		name: "An unescaped slash in the id is 404",
		mend: "One segment is the id. Two are no resource.",
		run: func(ctx context.Context, p *peer) error {
			got, err := p.byPath(ctx, http.MethodDelete, p.id+"/b")
			return p.refuses(got, err, http.StatusNotFound)
		},
	},
}

// samePerson compares what an id in the path and the same id in a body are answered with.
func samePerson(escape func(string) string, suffix string) func(ctx context.Context, p *peer) error {
	return func(ctx context.Context, p *peer) error {
		byPath, err := p.erased(p.byPath(ctx, http.MethodDelete, escape(p.id+suffix)))
		if err != nil {
			return err
		}
		byBody, err := p.erased(p.post(ctx, "delete", p.naming(p.id+suffix)))
		if err == nil && byPath != byBody {
			err = fmt.Errorf("two references for one id")
		}
		return err
	}
}

func checkDecodedOnce(ctx context.Context, p *peer) error {
	refs := map[string]subject.Ref{}
	for _, escaped := range []string{"%2Fb", "%252Fb"} {
		once, err := url.PathUnescape(escaped)
		if err != nil {
			return fmt.Errorf("the path of this check: %w", err)
		}
		byPath, err := p.erased(p.byPath(ctx, http.MethodDelete, p.id+escaped))
		if err != nil {
			return err
		}
		byBody, err := p.erased(p.post(ctx, "delete", p.naming(p.id+once)))
		if err != nil {
			return err
		}
		if byPath != byBody {
			return fmt.Errorf("a%s in the path is not the id a%s", escaped, once)
		}
		refs[escaped] = byPath
	}
	if refs["%2Fb"] == refs["%252Fb"] {
		return fmt.Errorf("one reference for two people")
	}
	return nil
}

// body is a raw body about this run's person, with something put in front of the closing brace.
func (p *peer) body(rest string) []byte {
	return fmt.Appendf(nil, `{"tenant_id":%q,"identity_id":%q%s}`, p.tenant, p.id, rest)
}

var refusalChecks = []check{
	{
		name: "A field that is unknown, repeated or in another case is 400",
		mend: "Decode strictly. Most JSON decoders take the last of two equal names, and some any case: both can erase another person than the caller meant.",
		run: refusesBodies(http.StatusBadRequest, func(p *peer) map[string][]byte {
			return map[string][]byte{
				"an unknown field":           p.body(`,"colour":"red"`),
				"identity_id twice":          p.body(`,"identity_id":"x"`),
				"a second, escaped spelling": p.body(`,"identity\u005fid":"x"`),
				"Identity_ID beside it":      p.body(`,"Identity_ID":"x"`),
			}
		}),
	},
	{
		name: "A body that is not exactly one JSON object is 400",
		mend: "Refuse anything before or behind the object, invalid UTF-8, and values of another type.",
		run: refusesBodies(http.StatusBadRequest, func(p *peer) map[string][]byte {
			return map[string][]byte{
				"a second object":   append(p.body(""), "{}"...),
				"text behind it":    append(p.body(""), " x"...),
				"half an object":    p.body("")[:20],
				"an array":          append(append([]byte("["), p.body("")...), ']'),
				"nothing":           {},
				"invalid UTF-8":     bytes.Replace(p.body(""), []byte("recount"), []byte("\xff"), 2),
				"a number as an id": fmt.Appendf(nil, `{"tenant_id":%q,"identity_id":7}`, p.tenant),
			}
		}),
	},
	{
		name: "A tenant that is missing or malformed is 400",
		mend: "tenant_id is [a-z0-9][a-z0-9_-]{0,62}, required everywhere, given once.",
		run:  checkTenant,
	},
	{
		name: "An id that no URL or store can carry is 400",
		mend: "identity_id is 1 to 512 bytes of valid UTF-8 without control characters, and neither '.' nor '..'.",
		run: refusesBodies(http.StatusBadRequest, func(p *peer) map[string][]byte {
			bodies := map[string][]byte{"no id": fmt.Appendf(nil, `{"tenant_id":%q}`, p.tenant)}
			for what, id := range map[string]string{
				"'.'": ".", "'..'": "..", "an empty id": "", "513 bytes": strings.Repeat("a", 513), "a control character": `a\u0007`, "DEL": `a\u007f`,
			} {
				bodies[what] = fmt.Appendf(nil, `{"tenant_id":%q,"identity_id":"%s"}`, p.tenant, id)
			}
			return bodies
		}),
	},
	{
		name: "A batch of none or of more than 1,000 is refused",
		mend: "A batch names 1 to 1,000 ids: answer 400, 413 or 422 otherwise.",
		run: func(ctx context.Context, p *peer) error {
			for _, n := range []int{0, wire.MaxBatch + 1} {
				ids := make([]string, n)
				for i := range ids {
					ids[i] = fmt.Sprintf("%s-%d", p.id, i)
				}
				got, err := p.post(ctx, "batchDelete", wire.BatchRequest{TenantID: p.tenant, IdentityIDs: ids})
				if err := p.refuses(got, err, http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge); err != nil {
					return fmt.Errorf("%d ids: %w", n, err)
				}
			}
			return nil
		},
	},
	{
		name: "Another method is 405, and names the right one",
		mend: "Answer 405 with an Allow header.",
		run:  checkMethods,
	},
	{
		name: "The cascade is the coordinator's alone: subject:erase is 405 on a cell",
		mend: "A cell answers for its own stores. Answer 405 to subject:erase and subject:batchErase.",
		run: func(ctx context.Context, p *peer) error {
			if p.at.name == coordinatorCell {
				return fmt.Errorf("%w: this is the coordinator", errSkipped)
			}
			got, err := p.post(ctx, "erase", p.naming(p.id))
			return p.refuses(got, err, http.StatusMethodNotAllowed)
		},
	},
	{
		name: "A body that is not application/json is 415",
		mend: "Refuse other media types: a browser's form post must not erase anybody.",
		run: func(ctx context.Context, p *peer) error {
			for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", ""} {
				got, err := p.send(ctx, message{method: http.MethodPost, path: "/v1/intent/subject:delete", contentType: kind, body: p.body("")})
				if err := p.refuses(got, err, http.StatusUnsupportedMediaType); err != nil {
					return fmt.Errorf("Content-Type %q: %w", kind, err)
				}
			}
			return nil
		},
	},
	{
		name: "A body of 4 MiB is 413",
		mend: "Bound what is read of a body, at 1 MiB or so, and answer 413 before closing the connection.",
		run:  checkTooLarge,
	},
	{
		name: "A caller without a good token is 401",
		mend: "Verify the ID token's signature, issuer, audience and expiry before anything of the body is read.",
		run:  checkUnauthenticated,
	},
}

// refusesBodies checks that each body is refused with the code.
func refusesBodies(code int, bodies func(p *peer) map[string][]byte) func(ctx context.Context, p *peer) error {
	return func(ctx context.Context, p *peer) error {
		sent := bodies(p)
		for _, what := range slices.Sorted(maps.Keys(sent)) {
			got, err := p.post(ctx, "delete", sent[what])
			if err := p.refuses(got, err, code); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		return nil
	}
}

func checkTenant(ctx context.Context, p *peer) error {
	for _, tenant := range []string{"", "Recount", "-a", "a b", "a|b", strings.Repeat("a", 64)} {
		got, err := p.post(ctx, "delete", wire.SubjectRequest{TenantID: tenant, IdentityID: p.id})
		if err := p.refuses(got, err, http.StatusBadRequest); err != nil {
			return fmt.Errorf("the tenant %q: %w", tenant, err)
		}
	}
	got, err := p.post(ctx, "delete", fmt.Appendf(nil, `{"identity_id":%q}`, p.id))
	if err := p.refuses(got, err, http.StatusBadRequest); err != nil {
		return fmt.Errorf("no tenant in the body: %w", err)
	}
	for what, query := range map[string]string{"no tenant": "", "two tenants": "?tenant_id=" + p.tenant + "&tenant_id=" + p.tenant} {
		got, err := p.send(ctx, message{method: http.MethodDelete, path: "/v1/intent/subject/" + p.id + query})
		if err := p.refuses(got, err, http.StatusBadRequest); err != nil {
			return fmt.Errorf("%s in the query: %w", what, err)
		}
	}
	return nil
}

func checkMethods(ctx context.Context, p *peer) error {
	for _, m := range []message{
		{method: http.MethodGet, path: "/v1/intent/subject:delete"},
		{method: http.MethodPut, path: "/v1/intent/subject/" + p.id + "?tenant_id=" + p.tenant},
		{method: http.MethodPost, path: "/health"},
	} {
		got, err := p.send(ctx, m)
		if err := p.refuses(got, err, http.StatusMethodNotAllowed); err != nil {
			return fmt.Errorf("%s: %w", m.method, err)
		}
		if got.header.Get("Allow") == "" {
			return fmt.Errorf("%s: 405 without an Allow header", m.method)
		}
	}
	return nil
}

func checkTooLarge(ctx context.Context, p *peer) error {
	body := append(bytes.Repeat([]byte(" "), 4<<20), p.body("")...)
	var failed error
	for range 3 { // a server that closes early may break the connection before its answer is read
		got, err := p.post(ctx, "delete", body)
		if failed = p.refuses(got, err, http.StatusRequestEntityTooLarge); failed == nil || err == nil {
			break
		}
	}
	return failed
}

func checkUnauthenticated(ctx context.Context, p *peer) error {
	m := message{
		method: http.MethodPost, path: "/v1/intent/subject:delete", contentType: "application/json", body: p.body(""), anonymous: true,
	}
	got, err := p.send(ctx, m)
	if err == nil && got.code == http.StatusOK && !p.tokens {
		return fmt.Errorf("%w: it asks for no token, and none was given", errSkipped)
	}
	return p.refuses(got, err, http.StatusUnauthorized)
}
