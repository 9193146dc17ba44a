package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sagenbaum/sagenbaum/ledger"
)

// authorityName begins the names of the authority's own files.
const authorityName = "ca"

// How long certificates are good for, and how long before its end a server's is made again.
const (
	authorityYears   = 20
	certificateYears = 5
	certificateAgain = 365 * 24 * time.Hour
)

// Authority signs the certificates of servers, for TLS that clients verify without settings:
// its own certificate is in their credentials. It is a folder with ca.pem and ca.key.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	PEM         []byte // its certificate
}

// OpenAuthority finds the authority in a folder, or makes it.
func OpenAuthority(dir string, now time.Time) (*Authority, error) {
	a := &Authority{dir: dir}
	certFile, keyFile := filepath.Join(dir, authorityName+".pem"),
		filepath.Join(dir, authorityName+".key")
	if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) { // it is written last
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "Sagenbaum " + filepath.Base(filepath.Dir(dir))},
			IsCA:    true, BasicConstraintsValid: true, MaxPathLenZero: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
			NotAfter: now.AddDate(authorityYears, 0, 0),
		}
		if err := a.sign(template, certFile, keyFile, now); err != nil {
			return nil, err
		}
	}
	var err error
	if a.PEM, err = os.ReadFile(certFile); err != nil {
		return nil, fmt.Errorf("cannot read the authority: %w", err)
	}
	if a.certificate, err = parseCertificate(a.PEM); err != nil {
		return nil, fmt.Errorf("cannot read the authority %s: %w", certFile, err)
	}
	secret, err := ReadSecret("ca", keyFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(secret)
	if block == nil {
		return nil, fmt.Errorf("cannot read the authority: %s has no key", keyFile)
	}
	if a.key, err = x509.ParseECPrivateKey(block.Bytes); err != nil {
		return nil, fmt.Errorf("cannot read the authority %s: %w", keyFile, err)
	}
	return a, nil
}

func parseCertificate(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Certificate finds the certificate of a name in the authority's folder, NAME.pem and
// NAME.key, or makes it: for these hosts, and for both sides of a connection. One that is for
// other hosts, of another authority or ends within a year is replaced.
func (a *Authority) Certificate(name string, hosts []string, now time.Time) (certFile,
	keyFile string, err error) {
	if strings.EqualFold(name, authorityName) {
		return "", "", ledger.Refuse("name", fmt.Sprintf("%.80q is the authority's own", name),
			"another name: its certificate would replace the authority")
	}
	certFile, keyFile = filepath.Join(a.dir, name+".pem"), filepath.Join(a.dir, name+".key")
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotAfter:    now.AddDate(certificateYears, 0, 0),
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if text, err := os.ReadFile(certFile); err == nil {
		have, err := parseCertificate(text)
		_, unpaired := tls.LoadX509KeyPair(certFile, keyFile) // a crash may have come between them
		if err == nil && unpaired == nil && have.CheckSignatureFrom(a.certificate) == nil &&
			have.NotAfter.Sub(now) > certificateAgain && sameHosts(have, template) {
			return certFile, keyFile, nil
		}
	}
	return certFile, keyFile, a.sign(template, certFile, keyFile, now)
}

func sameHosts(a, b *x509.Certificate) bool {
	return slices.Equal(a.DNSNames, b.DNSNames) &&
		slices.EqualFunc(a.IPAddresses, b.IPAddresses, net.IP.Equal)
}

// sign makes a certificate with a new key, signed by the authority or, before there is one, by
// itself.
func (a *Authority) sign(template *x509.Certificate, certFile, keyFile string,
	now time.Time) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	template.SerialNumber, template.NotBefore = serial, now.Add(-time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("cannot make a certificate: %w", err)
	}
	err = WriteSecret(keyFile, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret}))
	if err == nil { // a certificate is there only with its key
		err = WriteSecret(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	if err != nil {
		return fmt.Errorf("cannot keep a certificate: %w", err)
	}
	return nil
}
