// Package queuetest is what tests of several packages use: a Base, which is one test's queue name on a real server
// with a log and the invariant checker at its end, ways to wait, hooks, and readers of the repository's pages. Of the
// library it imports only internal/check and internal/event, because tests inside of each package import it.
package queuetest
