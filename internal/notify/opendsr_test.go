package notify

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

var openDSRKey = sync.OnceValues(GenerateKey)

func pemOf(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func TestWhatASignerSignsItsCertificateVerifies(t *testing.T) {
	text, err := openDSRKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(text, "DSR.example.com")
	if err != nil {
		t.Fatal(err)
	}
	block, rest := pem.Decode(s.Certificate())
	if block == nil || len(rest) > 0 {
		t.Fatalf("no certificate: %s", s.Certificate())
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if certificate.VerifyHostname("dsr.example.com") != nil || certificate.CheckSignature(x509.SHA256WithRSA, certificate.RawTBSCertificate, certificate.Signature) != nil {
		t.Error("it is not for the domain, or not signed by itself")
	}
	body := []byte(`{"request_status":"pending"}`)
	header := s.Sign("msg_1", time.Now(), body)
	signature, err := base64.StdEncoding.DecodeString(header.Get(HeaderOpenDSRSignature))
	if err != nil || certificate.CheckSignature(x509.SHA256WithRSA, body, signature) != nil || header.Get(HeaderProcessorDomain) != s.Domain() || len(header) != 2 {
		t.Errorf("%v %v", header, err)
	}
	if certificate.CheckSignature(x509.SHA256WithRSA, append(body, ' '), signature) == nil {
		t.Error("another body is verified too")
	}
}

func TestEveryProcessWithAKeyShowsTheSameCertificate(t *testing.T) {
	text, err := openDSRKey()
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(text))
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key := parsed.(*rsa.PrivateKey)
	one, err1 := NewSigner(text, "dsr.example.com")
	two, err2 := NewSigner(pemOf(pemPKCS1, x509.MarshalPKCS1PrivateKey(key))+"\n", "dsr.example.com")
	other, err3 := NewSigner(text, strings.Repeat("a", 60)+".example.com")
	if err1 != nil || err2 != nil || err3 != nil {
		t.Fatal(err1, err2, err3)
	}
	if !bytes.Equal(one.Certificate(), two.Certificate()) || bytes.Equal(one.Certificate(), other.Certificate()) {
		t.Error("they differ for one domain, or are the same for two")
	}
	one.Certificate()[0] = 'x'
	if !bytes.Equal(one.Certificate(), two.Certificate()) {
		t.Error("who reads it changes it")
	}
}

func TestAKeyThatIsNoneIsRefusedAndNeverPrinted(t *testing.T) {
	text, err := openDSRKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewSigner(text, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		if got := fmt.Sprintf(verb, s); got != redacted {
			t.Errorf("%s prints %.40s", verb, got)
		}
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	curve, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(curve)
	if err != nil {
		t.Fatal(err)
	}
	for what, key := range map[string]string{
		"nothing": "", "no PEM": "secret", "two": text + text, "a weak one": pemOf(pemPKCS1, x509.MarshalPKCS1PrivateKey(weak)), "a curve": pemOf(pemPKCS8, der),
		"a certificate": string(s.Certificate()), "secret bytes": pemOf(pemPKCS8, []byte("secret")), "secret bytes in PKCS #1": pemOf(pemPKCS1, []byte("secret")),
	} {
		if got, err := NewSigner(key, "dsr.example.com"); got != nil || err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, domain := range []string{"", "https://dsr.example.com", "dsr.example.com:443", "10.0.0.1", "a b", strings.Repeat("a.", 200) + "example"} {
		if _, err := NewSigner(text, domain); err == nil {
			t.Errorf("%q is taken", domain)
		}
	}
}
