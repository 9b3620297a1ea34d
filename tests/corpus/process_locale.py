import locale, time, sys, codecs
print(locale.getlocale(), locale.getpreferredencoding(), locale.setlocale(locale.LC_ALL))
print(locale.setlocale(locale.LC_ALL, ""), locale.localeconv()["decimal_point"])
print(time.tzname, time.timezone, time.strftime("%A %d %B %Y", time.gmtime(0)))
print(open(__file__).encoding, f"{1234567.891:n} {1234567:,}")
try:
    locale.setlocale(locale.LC_ALL, "tlh_QO")
except locale.Error as error:
    print(error)
