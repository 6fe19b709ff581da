// Package dbtest starts database servers for tests, as redistest starts Redis: PostgreSQL and MariaDB of the packages
// postgresql and mariadb-server, on free ports, in folders of their own. It imports no driver. A server ends with the
// process that started it.
package dbtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/go-delayqueue/delayqueue/internal/redistest"
)

// A Server is a database server. Its methods are not safe for concurrent use.
type Server struct {
	DSN string // for a driver: pgx of PostgreSQL, go-sql-driver/mysql of MariaDB

	folder  string
	account string // whose the process is; "": the account of this process
	port    int
	command []string
	ready   []string // whether users can log in; nil: as soon as it accepts connections
	stop    []string // ends it; nil: SIGTERM does
	process *redistest.Process
	output  *os.File
}

const startTime = time.Minute

// Postgres starts a PostgreSQL. Settings are as in its file, "fsync=off".
func Postgres(settings ...string) (*Server, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	s, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	err = s.run(filepath.Join(programs, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "--no-sync",
		"-E", "UTF8", "--no-locale")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s.postgres(programs, settings)
}

// postgres starts the PostgreSQL whose data is there.
func (s *Server) postgres(programs string, settings []string) (*Server, error) {
	s.command = []string{filepath.Join(programs, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", "dynamic_shared_memory_type=mmap"} // which goes with the folder
	for _, setting := range settings {
		s.command = append(s.command, "-c", setting)
	}
	s.ready = []string{filepath.Join(programs, "pg_isready"), "-q", "-h", "127.0.0.1", "-p", strconv.Itoa(s.port)}
	s.stop = []string{filepath.Join(programs, "pg_ctl"), "stop", "-m", "fast", "-w", "-D", s.data()}
	s.DSN = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// postgresPrograms is the folder of initdb and postgres, of the newest version that is installed.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		path, err = filepath.EvalSymlinks(path) // the other programs may have no links
		return filepath.Dir(path), err
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb") // the pattern is a good one
	if len(found) == 0 {
		return "", errors.New("dbtest: PostgreSQL is missing: .ci/install-databases installs it")
	}
	return filepath.Dir(slices.Max(found)), nil
}

// Replica starts a PostgreSQL that follows s, which streams to it.
func (s *Server) Replica(settings ...string) (*Server, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return nil, err
	}
	replica, err := newServer("postgres")
	if err != nil {
		return nil, err
	}
	err = replica.run(filepath.Join(programs, "pg_basebackup"), "-D", replica.data(), "-R", "-X", "stream", "-c", "fast",
		"-d", s.DSN)
	if err != nil {
		return nil, errors.Join(err, replica.Close())
	}
	return replica.postgres(programs, settings)
}

// Promote makes a replica a server that is written to.
func (s *Server) Promote() error {
	programs, err := postgresPrograms()
	if err != nil {
		return err
	}
	return s.run(filepath.Join(programs, "pg_ctl"), "promote", "-w", "-D", s.data())
}

// MariaDB starts a MariaDB, with the database "test". Settings are as in its file, "innodb_flush_log_at_trx_commit=0".
func MariaDB(settings ...string) (*Server, error) {
	program, err := exec.LookPath("mariadbd")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/mariadbd") // which is in the PATH of root alone
	}
	if err != nil {
		return nil, errors.New("dbtest: MariaDB is missing: .ci/install-databases installs it")
	}
	s, err := newServer("mysql")
	if err != nil {
		return nil, err
	}
	err = s.run("mariadb-install-db", "--no-defaults", "--datadir="+s.data(), "--auth-root-authentication-method=normal",
		"--skip-name-resolve", "--tmpdir="+s.folder)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.command = []string{program, "--no-defaults", "--datadir=" + s.data(), "--port=" + strconv.Itoa(s.port),
		"--bind-address=127.0.0.1", "--socket=" + filepath.Join(s.folder, "socket"), "--skip-log-bin",
		"--pid-file=" + filepath.Join(s.folder, "pid"), "--tmpdir=" + s.folder}
	for _, setting := range settings {
		s.command = append(s.command, "--"+setting)
	}
	s.DSN = fmt.Sprintf("root@tcp(127.0.0.1:%d)/test", s.port)
	if err := s.Start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// newServer has a folder and a port. If this process is root's, the server is another account's, because servers
// refuse to be root's.
func newServer(account string) (*Server, error) {
	port, err := redistest.ReservePort()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "dbtest-")
	if err != nil {
		return nil, err
	}
	s := &Server{folder: folder, port: port}
	if s.output, err = os.Create(filepath.Join(folder, "output")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if os.Getuid() != 0 {
		return s, nil
	}
	s.account = account
	who, err := user.Lookup(account)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	uid, _ := strconv.Atoi(who.Uid)
	gid, _ := strconv.Atoi(who.Gid)
	if err := os.Chown(folder, uid, gid); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// as is a command as the server's account runs it. The signal that ends it with its parent is lost when the account
// changes, so setpriv sets it again.
func (s *Server) as(command ...string) []string {
	if s.account == "" {
		return command
	}
	change := []string{"setpriv", "--reuid", s.account, "--regid", s.account, "--clear-groups", "--pdeathsig", "KILL",
		"--"}
	return append(change, command...)
}

// run runs a command to its end.
func (s *Server) run(command ...string) error {
	command = s.as(command...)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = s.folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("dbtest: %v: %w\n%s", command, err, out)
	}
	return nil
}

// Start starts the server again after Kill or Stop, and returns when users can log in.
func (s *Server) Start() error {
	command := s.as(s.command...)
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("dbtest: %w", err)
	}
	if s.process, err = redistest.StartProcess(path, command[1:], s.folder, s.output); err != nil {
		return fmt.Errorf("dbtest: %w", err)
	}
	for end := time.Now().Add(startTime); time.Now().Before(end) && !s.process.Ended(); time.Sleep(20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.port)); err == nil {
			if err := conn.Close(); err != nil {
				return fmt.Errorf("dbtest: %w", err)
			}
			if time.Sleep(100 * time.Millisecond); s.process.Ended() {
				break // another process has the port
			}
			if s.ready == nil || s.run(s.ready...) == nil {
				return nil
			}
		}
	}
	s.process.Kill()
	return fmt.Errorf("dbtest: the server did not start:\n%s", s.Output())
}

// Kill ends the server as kill -9 does. Its children end by themselves.
func (s *Server) Kill() { s.process.Kill() }

// Stop ends the server in an orderly way. Connections are cut.
func (s *Server) Stop() error {
	if s.stop == nil {
		s.process.Stop()
		return nil
	}
	return s.run(s.stop...)
}

// Pause freezes the server, and Resume lets it go on. Of a PostgreSQL it freezes none of the connections.
func (s *Server) Pause()  { s.process.Pause() }
func (s *Server) Resume() { s.process.Resume() }

// Output is what the server has said.
func (s *Server) Output() string {
	text, err := os.ReadFile(s.output.Name())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Close ends the server, and deletes what it has.
func (s *Server) Close() error {
	var err error
	if s.process != nil {
		if s.stop != nil && !s.process.Ended() { // a PostgreSQL that is killed leaves shared memory behind
			s.process.Resume()
			err = s.run(append(s.stop[:len(s.stop):len(s.stop)], "-m", "immediate")...)
		}
		s.process.Kill()
	}
	if s.output != nil {
		err = errors.Join(err, s.output.Close())
	}
	redistest.ReleasePort(s.port)
	return errors.Join(err, os.RemoveAll(s.folder))
}

// Pid is the process of the server.
func (s *Server) Pid() int { return s.process.Pid() }
