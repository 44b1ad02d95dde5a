// Package sqltest makes random SQL for tests that run it on two databases and compare what they say. It knows nothing of either.
package sqltest
