package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-delayqueue/delayqueue"
	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// certificates writes those of an authority, and of what it has signed for 127.0.0.1.
func certificates(t *testing.T) (ca, cert, key string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		ok(t, os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
		return path
	}
	template := func(serial int64, authority bool) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: strconv.FormatInt(serial, 10)}, NotBefore: time.Now().Add(-time.Hour),
			NotAfter: time.Now().Add(24 * time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: authority,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	root := template(1, true)
	caDER, err := x509.CreateCertificate(rand.Reader, root, root, &caKey.PublicKey, caKey)
	ok(t, err)
	ownKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template(2, false), root, &ownKey.PublicKey, caKey)
	ok(t, err)
	keyDER, err := x509.MarshalECPrivateKey(ownKey)
	ok(t, err)
	return write("ca.pem", "CERTIFICATE", caDER), write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

// A server that wants a client's certificate, signed by an authority of its own.
func TestTLS(t *testing.T) {
	ca, cert, key := certificates(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	port := strconv.Itoa(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	s := redistest.Start(t, "--tls-port", port, "--tls-ca-cert-file", ca, "--tls-cert-file", cert, "--tls-key-file",
		key, "--tls-auth-clients", "yes")
	w := newWorld(t, "rediss://127.0.0.1:"+port, s.Client(t))
	w.send("orders", "a", delayqueue.WithDelay(time.Hour))
	w.refused(exitNoRedis, "certificate", "queues")
	w.contains(w.must("queues", "--cacert", ca, "--cert", cert, "--cert-key", key), "orders")
	w.refused(exitUsage, "--cert and --cert-key go together", "queues", "--cacert", ca, "--cert", cert)
	w.refused(exitUsage, "there is no certificate in it", "queues", "--cacert", key)
	w.refused(exitUsage, "--cacert: open", "queues", "--cacert", ca+"x")
	w.url = "redis://127.0.0.1:" + port
	w.refused(exitUsage, "did you mean rediss://127.0.0.1:"+port+"?", "queues", "--cacert", ca)
}
