// Package browsertest tests the pages of package web in a real browser, Debian's Chromium, against a real Redis with
// five queues: 200,000 messages that wait, 4,000 in garbage, and consumers that fail. It is a module of its own for
// what drives the browser; nothing imports it. ".ci/install-chromium" and ".ci/install-axe" fetch what it needs, and
// "make test-web" calls them.
package browsertest
