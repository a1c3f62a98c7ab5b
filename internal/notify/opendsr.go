package notify

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"time"
)

// The headers of OpenDSR 2.0, on answers and on callbacks.
const (
	HeaderProcessorDomain  = "X-OpenDSR-Processor-Domain"
	HeaderOpenDSRSignature = "X-OpenDSR-Signature"
)

const (
	minRSABits    = 2048
	newRSABits    = 3072
	maxCommonName = 64 // of RFC 5280
	pemPKCS1      = "RSA PRIVATE KEY"
	pemPKCS8      = "PRIVATE KEY"
)

// The certificate is good as long as its key is: RFC 5280's notAfter of what has no known end. Both times are fixed, so that
// every process with the key shows the same certificate.
var (
	certificateFrom  = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	certificateUntil = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Signer signs answers and callbacks as OpenDSR 2.0 has it. It is safe for concurrent use, and prints as "[redacted]".
type Signer struct {
	key         *rsa.PrivateKey
	domain      string
	certificate []byte
}

// NewSigner takes an RSA key of at least 2048 bits, in PEM, as PKCS #1 or PKCS #8, and the processor's domain. The errors hold
// nothing of the key.
func NewSigner(pemKey, domain string) (*Signer, error) {
	domain = lower(domain)
	if len(domain) > maxName || !nameForm.MatchString(domain) {
		return nil, errors.New("the processor's domain is not a host name: write dsr.example.com, without a scheme or a port")
	}
	key, err := parseRSA(pemKey)
	if err != nil {
		return nil, err
	}
	s := &Signer{key: key, domain: domain}
	if s.certificate, err = s.selfSigned(); err != nil {
		return nil, err
	}
	return s, nil
}

// GenerateKey makes a key for NewSigner, in PEM.
func GenerateKey() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, newRSABits)
	if err != nil {
		return "", fmt.Errorf("making a key for OpenDSR: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", fmt.Errorf("writing a key for OpenDSR: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: pemPKCS8, Bytes: der})), nil
}

func parseRSA(text string) (*rsa.PrivateKey, error) {
	block, rest := pem.Decode([]byte(text))
	if block == nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("the key for OpenDSR is not one PEM block: openssl genrsa 3072 makes one")
	}
	var parsed any
	var err error
	switch block.Type {
	case pemPKCS1:
		parsed, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	case pemPKCS8:
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	default:
		return nil, errors.New("the key for OpenDSR is neither a PRIVATE KEY nor an RSA PRIVATE KEY")
	}
	key, ok := parsed.(*rsa.PrivateKey)
	switch {
	case err != nil: // not wrapped: it may say what is in the key
		return nil, errors.New("the key for OpenDSR can't be read")
	case !ok:
		return nil, errors.New("the key for OpenDSR is not an RSA key")
	case key.N.BitLen() < minRSABits:
		return nil, fmt.Errorf("the key for OpenDSR has %d bits, and needs at least %d", key.N.BitLen(), minRSABits)
	}
	return key, nil
}

// selfSigned is the certificate of the key for the domain, the same each time: PKCS #1 v1.5 has no random part.
func (s *Signer) selfSigned() ([]byte, error) {
	serial := sha256.Sum256(append(x509.MarshalPKCS1PublicKey(&s.key.PublicKey), s.domain...))
	serial[0] = serial[0]&0x7f | 0x40 // positive, and never short
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(serial[:16]), NotBefore: certificateFrom, NotAfter: certificateUntil,
		DNSNames: []string{s.domain}, KeyUsage: x509.KeyUsageDigitalSignature, SignatureAlgorithm: x509.SHA256WithRSA,
	}
	if len(s.domain) <= maxCommonName {
		template.Subject = pkix.Name{CommonName: s.domain}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &s.key.PublicKey, s.key)
	if err != nil {
		return nil, fmt.Errorf("making the certificate for OpenDSR: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// Format keeps every fmt verb from printing the key.
func (*Signer) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// Domain is the processor's.
func (s *Signer) Domain() string { return s.domain }

// Certificate is the X.509 certificate of the key, in PEM.
func (s *Signer) Certificate() []byte { return bytes.Clone(s.certificate) }

// Sign answers the two headers of an answer or a callback: the processor's domain, and RSA-SHA256 (PKCS #1 v1.5) over the
// body, byte for byte. OpenDSR signs neither an id nor a time.
func (s *Signer) Sign(_ string, _ time.Time, body []byte) http.Header {
	header := make(http.Header)
	header.Set(HeaderProcessorDomain, s.domain)
	digest := sha256.Sum256(body)
	signature, err := rsa.SignPKCS1v15(nil, s.key, crypto.SHA256, digest[:])
	if err == nil { // always, for a key that signed its certificate; a receiver takes nothing unsigned
		header.Set(HeaderOpenDSRSignature, base64.StdEncoding.EncodeToString(signature))
	}
	return header
}
