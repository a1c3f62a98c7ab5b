package notify

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestHostsAreReadInTheirCanonicalForm(t *testing.T) {
	got, err := ParseHosts(" Hooks.Example , crm.example:8443,b.example:443,localhost:80,127.0.0.1:8080,[::1]:9,::1,[::ffff:127.0.0.2],xn--bcher-kva.example")
	want := Hosts{
		"hooks.example", "crm.example:8443", "b.example", "localhost:80", "127.0.0.1:8080", "[::1]:9", "[::1]", "127.0.0.2", "xn--bcher-kva.example",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := ParseHosts(" "); got != nil || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEveryBadHostIsNamedAndNotQuoted(t *testing.T) {
	for item, want := range map[string]string{
		"": "is empty", "https://hunter2.example": "is a URL", "hunter2.example/x": "is a URL", "u:hunter2@a.example": "is a URL", "*.hunter2.example": "has a wildcard",
		"hunter2.exämple": "is not ASCII", "\u212a.example": "is not ASCII", "hunter2.example:": "has a bad port", "hunter2.example:0": "has a bad port",
		"hunter2.example:65536": "has a bad port", "hunter2.example:080": "has a bad port", "10.0.0.1": "is an address", "8.8.8.8:443": "is an address",
		"[2606:4700::1]": "is an address", "::1%hunter2": "is an address", "127.1": "is not a host name", "0x7f.1": "is not a host name", "2130706433": "is not a host name",
		"hunter2.example.": "is not a host name", "-hunter2.example": "is not a host name", "hunter2_.example": "is not a host name", "[::1": "is not a host name",
		"[::1]x": "is not a host name", "[hunter2.example]": "is not a host name", "a..hunter2": "is not a host name", "hunter2 example": "is not a host name",
		strings.Repeat("a", 64) + ".example": "is not a host name", strings.Repeat("a.", 127) + "ab": "is not a host name", "A.example:443": "is listed before",
	} {
		text := "a.example," + item + ",*"
		if want == "is listed before" {
			want = "is a host that is listed before"
		}
		got, err := ParseHosts(text)
		if err == nil || got != nil || !strings.Contains(err.Error(), "host 2 of the list "+want) || !strings.Contains(err.Error(), "host 3 of the list has a wildcard") {
			t.Errorf("%q: %q, %v", item, got, err)
			continue
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error quotes: %v", err)
		}
	}
}

func TestAURLIsJudgedBeforeAnythingIsSent(t *testing.T) {
	hosts, err := ParseHosts("hooks.example,crm.example:8443,localhost:80,127.0.0.1:8080,[::1],127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string][2]string{ // without AllowLoopback, and with it
		"https://hooks.example":                              {},
		"HTTPS://HOOKS.example:443/x?y=z":                    {},
		"https://crm.example:8443/":                          {},
		"https://crm.example/":                               {problemHost, problemHost},
		"https://hooks.example:8443/":                        {problemHost, problemHost},
		"https://hooks.example./":                            {problemHost, problemHost},
		"https://x.hooks.example/":                           {problemHost, problemHost},
		"https://hooks.example.evil/":                        {problemHost, problemHost},
		"https://hoo\u212as.example/":                        {problemHost, problemHost},
		"https://8.8.8.8/":                                   {problemHost, problemHost},
		"https://hooks.example:0443/":                        {problemHost, problemHost},
		"http://hooks.example/":                              {problemScheme, problemScheme},
		"http://localhost.hooks.example":                     {problemScheme, problemScheme},
		"ftp://localhost/":                                   {problemScheme, problemScheme},
		"http://localhost/":                                  {problemScheme, ""},
		"http://127.0.0.1:8080/":                             {problemScheme, ""},
		"http://127.0.0.1/":                                  {problemScheme, problemHost},
		"https://[::1]/":                                     {problemLoopback, ""},
		"https://[0:0::0:1]/":                                {problemLoopback, ""},
		"https://127.0.0.1/":                                 {problemLoopback, ""},
		"https://2130706433/":                                {problemHost, problemHost},
		"https://[::1%25lo]/":                                {problemHost, problemHost},
		"https://u@hooks.example/":                           {problemUser, problemUser},
		"https://@hooks.example/":                            {problemUser, problemUser},
		"https://hooks.example/#x":                           {problemFragment, problemFragment},
		"https://hooks.example/#":                            {problemFragment, problemFragment},
		"https://hooks.example:/":                            {problemForm, problemForm},
		"https:hooks.example":                                {problemForm, problemForm},
		"//hooks.example/":                                   {problemScheme, problemScheme},
		"https:///x":                                         {problemForm, problemForm},
		"https://hooks.example\\@evil/":                      {problemForm, problemForm},
		"https://hooks.example/\r\nX: y":                     {problemForm, problemForm},
		"":                                                   {problemForm, problemForm},
		"https://hooks.example/" + strings.Repeat("x", 2027): {problemLong, problemLong},
		"https://hooks.example/" + strings.Repeat("x", 2026): {},
	} {
		for i, loopback := range []bool{false, true} {
			s := New(Config{Hosts: hosts, AllowLoopback: loopback})
			err := s.CheckURL(raw)
			var target *TargetError
			if want[i] == "" && err == nil {
				continue
			}
			if !errors.As(err, &target) || target.Problem != want[i] {
				t.Errorf("%.60q, loopback %v: %v", raw, loopback, err)
			}
			if _, err := s.Post(t.Context(), raw, nil, nil); !errors.As(err, &target) {
				t.Errorf("%.60q was sent: %v", raw, err)
			}
		}
	}
}

func FuzzParseHosts(f *testing.F) {
	for _, seed := range []string{"a.example,B.example:8443", "[::1]:80,127.0.0.1", "*.a,10.0.0.1", "a,,", "::ffff:127.0.0.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hosts, err := ParseHosts(text)
		if err != nil {
			if hosts != nil {
				t.Errorf("%q beside %v", hosts, err)
			}
			return
		}
		for _, host := range hosts {
			again, err := ParseHosts(string(host))
			if err != nil || len(again) != 1 || again[0] != host {
				t.Errorf("%q comes back as %q, %v", host, again, err)
			}
			s := New(Config{Hosts: hosts, AllowLoopback: true})
			if err := s.CheckURL("https://" + string(host) + "/"); err != nil {
				t.Errorf("%q is registered: %v", host, err)
			}
		}
	})
}
