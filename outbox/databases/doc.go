// Package databases tests the module outbox on real databases. It is a module of its own, so that a user of outbox
// gets none of their drivers.
package databases
