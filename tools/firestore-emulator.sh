#!/usr/bin/env bash
# Installs what the Firestore tests need, where it can: Google's emulator and a Java runtime. Where it can't, it says how,
# and those tests are skipped (with CI=true, they fail).
set -euo pipefail

have_emulator() {
  command -v gcloud >/dev/null && [ -d "$(gcloud info --format='value(installation.sdk_root)' 2>/dev/null)/platform/cloud-firestore-emulator" ]
}

if command -v java >/dev/null && have_emulator; then
  exit 0
fi
if command -v gcloud >/dev/null && ! have_emulator; then
  gcloud components install cloud-firestore-emulator --quiet || true # an SDK from a package manager refuses, and says so
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  command -v java >/dev/null || apt-get install -y -qq default-jre-headless || true
  have_emulator || apt-get install -y -qq google-cloud-cli google-cloud-cli-firestore-emulator || true
fi
if command -v java >/dev/null && have_emulator; then
  exit 0
fi
echo "The Firestore emulator is not here and could not be installed: install Java 11 or later and the Google Cloud CLI, then"
echo "run 'gcloud components install cloud-firestore-emulator'. Until then, the Firestore tests are skipped."
[ "${CI:-}" != true ]
