def main():
    print("as a program")

if __name__ == "__main__":
    main()
else:
    print("as a module")
